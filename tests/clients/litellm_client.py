# SPDX-License-Identifier: Apache-2.0
"""Chats, streams, calls of tools, structured answers, errors.

    litellm_client.py <base URL> <API key>
"""

import asyncio
import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no look at the network for prices
import litellm
import pydantic

litellm.suppress_debug_info = True  # no advice on stdout with every error

URL, KEY = sys.argv[1:]
server = {"model": "openai/reference", "api_base": URL, "api_key": KEY, "num_retries": 0}
question = [{"role": "user", "content": "Das Programm"}]


def check(what, truth):
    if not truth:
        sys.exit(f"not so: {what}")


class City(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=8)
    size: int = pydantic.Field(ge=0, le=99)


tool = {"type": "function", "function": {"name": "look_up", "parameters": {
    "type": "object", "properties": {"size": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["size"]}}}


def chats():
    greedy = dict(server, messages=question, max_tokens=12, temperature=0)
    whole = litellm.completion(**greedy)
    check("an answer", whole.choices[0].message.content)
    check("its tokens are counted", whole.usage.completion_tokens == 12)
    chunks = list(litellm.completion(**greedy, stream=True))
    text = "".join(each.choices[0].delta.content or "" for each in chunks)
    check("a stream has the same text", text == whole.choices[0].message.content)
    check("it says why it ends", chunks[-1].choices[0].finish_reason == "length")
    penalised = litellm.completion(**greedy, frequency_penalty=2, presence_penalty=2,
                                   logit_bias={"300": -100})
    check("penalties change it", penalised.choices[0].message.content != text)


def calls():
    request = dict(server, messages=question, tools=[tool], tool_choice="required", max_tokens=100,
                   seed=1, parallel_tool_calls=False)
    whole = litellm.completion(**request).choices[0]
    rebuilt = litellm.stream_chunk_builder(list(litellm.completion(**request, stream=True)))
    for choice in whole, rebuilt.choices[0]:
        check("a call ends the answer", choice.finish_reason == "tool_calls")
        [call] = choice.message.tool_calls
        check("it is of the tool", call.function.name == "look_up")
        check("arguments satisfy the schema", 0 <= json.loads(call.function.arguments)["size"] <= 9)
    check("the stream has the same call", whole.message.tool_calls[0].function.arguments
          == rebuilt.choices[0].message.tool_calls[0].function.arguments)


def formats():
    reply = litellm.completion(**server, messages=question, response_format=City, max_tokens=100, seed=1)
    City.model_validate_json(reply.choices[0].message.content)


def refusals():
    for kind, change in [(litellm.NotFoundError, {"model": "openai/x"}),
                         (litellm.AuthenticationError, {"api_key": "wrong"}),
                         (litellm.BadRequestError, {"n": 1000}),
                         (litellm.ContextWindowExceededError,
                          {"messages": [{"role": "user", "content": "7 + " * 40_000}]})]:
        try:
            litellm.completion(**{**server, "messages": question, **change})
        except kind:
            continue
        sys.exit(f"not refused: {change}")


async def many():
    replies = await asyncio.gather(*[litellm.acompletion(**server, messages=question, max_tokens=4,
                                                         temperature=0) for _ in range(8)])
    check("8 at once", len({each.choices[0].message.content for each in replies}) == 1)


chats()
calls()
formats()
refusals()
asyncio.run(many())
