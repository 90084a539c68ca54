"""The same training on several machines: a worker has some of the baskets and all parameters; Ray carries the rest."""
