"""The token tables in use by all processes of a run, and the policy for old ones."""

from trainer.subscriber.ranks import DistributedRanks, Ranks, SingleRank
from trainer.subscriber.subscriber import Subscriber, SubscriberStatus

__all__ = ["DistributedRanks", "Ranks", "SingleRank", "Subscriber", "SubscriberStatus"]
