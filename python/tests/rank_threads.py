# SPDX-License-Identifier: Apache-2.0
"""Ranks of a group as threads, for tests."""

import threading


def run_ranks(group, num_ranks, body):
    """What body(communicator, rank) returns, or raises, on each rank, a thread each."""
    ended = [None] * num_ranks

    def run(rank):
        try:
            ended[rank] = body(group.join(rank), rank)
        except Exception as error:
            ended[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ended
