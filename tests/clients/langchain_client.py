# SPDX-License-Identifier: Apache-2.0
"""Chats, streams, batches, an agent's calls of tools, structured answers.

    langchain_client.py <base URL> <API key>
"""

import sys
import typing

import pydantic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

URL, KEY = sys.argv[1:]


def check(what, truth):
    if not truth:
        sys.exit(f"not so: {what}")


def chat_model(**options):
    return ChatOpenAI(model="reference", base_url=URL, api_key=KEY, max_retries=0, **options)


class City(pydantic.BaseModel):
    """A city."""
    name: str = pydantic.Field(max_length=8)
    size: int = pydantic.Field(ge=0, le=99)


# A model that knows nothing of numbers writes digits without end.
Number = typing.Annotated[int, pydantic.Field(ge=0, le=99)]


@tool
def add(a: Number, b: Number) -> int:
    """Adds."""
    return a + b


@tool
def mark(on: bool) -> str:
    """Marks."""
    return "marked" if on else "not marked"


def chats():
    model = chat_model(temperature=0, max_tokens=12)
    reply = model.invoke("Das Programm")
    check("an answer", reply.content)
    check("its tokens are counted", reply.usage_metadata["output_tokens"] == 12)
    text = "".join(each.content for each in model.stream("Das Programm"))
    check("a stream has the same text", text == reply.content)
    both = model.batch(["Das Programm", "Once"])
    check("a batch has it, too", [each.content == text for each in both] == [True, False])


def agent():
    """Ten turns; every other one streamed."""
    tools = {each.name: each for each in (add, mark)}
    messages = [HumanMessage("What is 3 + 4?")]
    for turn in range(10):
        model = chat_model(seed=turn, max_tokens=200).bind_tools(
            list(tools.values()), tool_choice="required", parallel_tool_calls=False)
        reply = None
        if turn % 2:
            for chunk in model.stream(messages):
                reply = chunk if reply is None else reply + chunk
        else:
            reply = model.invoke(messages)
        check("no call is broken", not reply.invalid_tool_calls)
        [call] = reply.tool_calls
        messages += [reply, ToolMessage(tools[call["name"]].invoke(call["args"]), tool_call_id=call["id"])]


def formats():
    for method in "json_schema", "function_calling":
        model = chat_model(seed=2, max_tokens=200).with_structured_output(City, method=method)
        check(f"{method} gives a city", isinstance(model.invoke("Das Programm"), City))


chats()
agent()
formats()
