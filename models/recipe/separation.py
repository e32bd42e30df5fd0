# SPDX-License-Identifier: Apache-2.0
"""Keeps the domains apart in the routers: where two domains use the experts of a layer too much alike, their shares are
pushed apart.

Balancing alone leaves close pairs (Python and C, a text and its translation) at a total variation distance of 0.15 to 0.19
in the lower layers, at 5 as at 8 million tokens. This project wants load that changes with the domain in every layer. The
loss is a margin loss: a pair that is MARGIN apart is left alone.

Shares are averages over recent steps, because each process sees only some of the domains in a step. The gradient of the
distance with respect to one domain's share of an expert is plus or minus one half, by which of the two uses it more.
"""

import torch

MARGIN = 0.25
MEMORY = 0.97   # of the running averages


class Separation:
    """State in shared memory: every process records and reads, one updates between two barriers."""

    def __init__(self, processes, layers, domains, experts):
        self.counts = torch.zeros(processes, layers, domains, experts).share_memory_()
        self.shares = torch.zeros(layers, domains, experts).share_memory_()
        self.directions = torch.zeros(layers, domains, experts).share_memory_()

    def loss(self, routers, domains):
        """Of the latest forward pass over sequences of these domains (a list); its scale is that of a distance."""
        total = 0.0
        for router, directions in zip(routers, self.directions):
            scores = router.last_scores
            shares = (scores / scores.sum(-1, keepdim=True)).view(len(domains), -1, scores.shape[-1]).mean(1)
            total = total - (shares * directions[domains]).sum() / len(domains)
        return total

    def record(self, process, routers, domains):
        """Counts the choices of the latest forward pass."""
        self.counts[process] = 0.0
        for counts, router in zip(self.counts[process], routers):
            for domain, choice in zip(domains, router.last_choice.view(len(domains), -1)):
                counts[domain] += choice.bincount(minlength=counts.shape[-1])

    def update(self):
        """Running averages and directions from what all processes recorded."""
        counts = self.counts.sum(0)
        now = counts / counts.sum(-1, keepdim=True)
        self.shares.copy_(now if self.shares.sum() == 0 else self.shares.lerp(now, 1 - MEMORY))
        difference = self.shares.unsqueeze(2) - self.shares.unsqueeze(1)   # [layers, domain, other domain, experts]
        close = self.distances().unsqueeze(-1) < MARGIN
        self.directions.copy_((close * 0.5 * difference.sign()).sum(2))

    def distances(self):
        """Total variation between every two domains, [layers, domain, other domain]."""
        return 0.5 * (self.shares.unsqueeze(2) - self.shares.unsqueeze(1)).abs().sum(-1)

    def smallest(self):
        """Of each layer, over different domains."""
        return (self.distances() + torch.eye(self.shares.shape[1])).flatten(1).amin(1).tolist()
