"""The service: a model behind HTTP, with a page to try it. Needs the extra `serve`."""
