# SPDX-License-Identifier: Apache-2.0
"""wideep's planners behind the interfaces of other engines: docs/integrations.md.

    wideep.integrations.vllm          AbstractEplbPolicy
    wideep.integrations.sglang        eplb_algorithms
    wideep.integrations.tensorrt_llm  moe_load_balancer.yaml

Each module needs only its own engine, and that only for register().
"""


class PolicyError(ValueError, AssertionError):
    """Wrong arguments: a ValueError as everywhere in wideep, and an AssertionError as engines'
    own policies raise, because their callers may catch that."""
