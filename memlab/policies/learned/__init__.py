"""A policy of our own: keep what the store's own past says will be needed."""

from memlab.policies.learned.policy import Learned

__all__ = ["Learned"]
