"""The name of before; to be deleted."""

from contradpp.dpp.kernel import NonsymmetricKernel as NonsymmetricKernel
