# SPDX-License-Identifier: Apache-2.0
"""Structured answers by a schema and by a call of a tool, whole and streamed; an agent's tools.

    pydantic_ai_client.py <base URL> <API key>
"""

import asyncio
import sys
import typing

import pydantic
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

URL, KEY = sys.argv[1:]
# A model at random would call tools without end in one answer.
settings = {"max_tokens": 200, "parallel_tool_calls": False}
model = OpenAIChatModel("reference", provider=OpenAIProvider(base_url=URL, api_key=KEY))


def check(what, truth):
    if not truth:
        sys.exit(f"not so: {what}")


# A model that knows nothing of numbers writes digits without end.
Number = typing.Annotated[int, pydantic.Field(ge=0, le=99)]


class City(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=8)
    size: int = pydantic.Field(ge=0, le=99)


def answers():
    for output in City, NativeOutput(City):
        agent = Agent(model, output_type=output, retries=0)
        result = agent.run_sync("Das Programm", model_settings={**settings, "seed": 3})
        check("an answer is a city", isinstance(result.output, City))
        check("its tokens are counted", result.usage.output_tokens > 0)


async def streams():
    agent = Agent(model, output_type=NativeOutput(City), retries=0)
    async with agent.run_stream("Das Programm", model_settings={**settings, "seed": 4}) as run:
        check("a stream is a city", isinstance(await run.get_output(), City))


def tools():
    """The model must call the tool or give its answer by another one; it does either at random."""
    added, called = [], 0

    async def once(_, definition):  # else it might call it without end
        return None if added else definition

    agent = Agent(model, output_type=City, retries=0)

    @agent.tool_plain(prepare=once)
    def add(a: Number, b: Number) -> int:
        added.append(a + b)
        return a + b

    for seed in range(4):
        added.clear()
        result = agent.run_sync("Das Programm", model_settings={**settings, "seed": seed})
        check("it ends with a city", isinstance(result.output, City))
        called += len(added)
    check("the tool has been called", called)


answers()
asyncio.run(streams())
tools()
