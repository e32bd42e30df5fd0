# SPDX-License-Identifier: Apache-2.0
"""Responses: texts, conversations sent back and stored, an agent's calls of tools, parsed answers,
likely tokens, errors; every event and reply has the form of the package's types, and nothing else.

    openai_responses.py <base URL> <API key>
"""

import asyncio
import json
import sys
import typing
import urllib.error
import urllib.request

import openai
import pydantic
from openai.types.responses import Response, ResponseItemList, ResponseStreamEvent

URL, KEY = sys.argv[1:]
MODEL = "reference"
client = openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0)
event_type = pydantic.TypeAdapter(ResponseStreamEvent)
# OpenAI's replies have it; the package has no field for it.
NOT_IN_THE_TYPES = {"Response.store"}
# The model knows nothing of tools, so that its calls have to be kept short by their schemas.
TOOLS = [
    {"type": "function", "name": "look_up", "description": "The weather.", "strict": True,
     "parameters": {"type": "object", "additionalProperties": False, "required": ["city", "days"],
                    "properties": {"city": {"type": "string", "enum": ["Bern", "Paris"]},
                                   "days": {"type": "integer", "minimum": 1, "maximum": 14}}}},
    {"type": "function", "name": "stop", "description": None, "strict": None,
     "parameters": {"type": "object", "properties": {}, "additionalProperties": False}},
]
QUESTION = {"model": MODEL, "input": "What is 3 + 4?", "max_output_tokens": 24, "temperature": 0}


def check(what, truth):
    if not truth:
        sys.exit(f"not so: {what}")


def unknown_fields(value):
    """Fields of the reply that the types do not have, and would pass on without a look."""
    if isinstance(value, pydantic.BaseModel):
        for name in value.model_extra or {}:
            yield f"{type(value).__name__}.{name}"
        for name in type(value).model_fields:
            yield from unknown_fields(getattr(value, name))
    elif isinstance(value, list):
        for each in value:
            yield from unknown_fields(each)


def strict(adapter, data):
    """The value of the type that the data has, and nothing else."""
    value = adapter.validate_json(json.dumps(data), strict=True)
    unknown = set(unknown_fields(value)) - NOT_IN_THE_TYPES
    check(f"the types have {unknown} in {data}", not unknown)
    return value


def ask(path, body=None):
    """Without the package: the bytes that it would get."""
    request = urllib.request.Request(
        URL + path, None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=300) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def whole(body):
    status, text = ask("/responses", body)
    check(f"status 200, found {status}: {text}", status == 200)
    return strict(pydantic.TypeAdapter(Response), json.loads(text))


def events_of(body):
    """The events, each of a type that the package has, in the one order that is allowed."""
    status, text = ask("/responses", {**body, "stream": True})
    check(f"status 200, found {status}: {text}", status == 200)
    events = []
    for number, event in enumerate(text.removesuffix("\n\n").split("\n\n")):
        name, data = event.split("\n")
        data = json.loads(data.removeprefix("data: "))
        check("an event is called by its type", name == f"event: {data['type']}")
        check("events are numbered", data["sequence_number"] == number)
        events.append(strict(event_type, data))
    check_order(events)
    return events


def check_order(events):
    kinds = [each.type.removeprefix("response.") for each in events]
    check(f"a stream begins and ends: {kinds}", kinds[:2] == ["created", "in_progress"]
          and kinds[-1] in ("completed", "incomplete"))
    items, at = [], 2
    while at < len(events) - 1:
        check("an item begins", kinds[at] == "output_item.added")
        index, item = events[at].output_index, events[at].item
        check("items are counted", index == len(items) and item.status == "in_progress")
        end = kinds.index("output_item.done", at)
        inner = kinds[at + 1:end]
        part = {"message": "output_text", "reasoning": "reasoning_text",
                "function_call": "function_call_arguments"}[item.type]
        deltas = [each for each in events[at + 1:end] if each.type == f"response.{part}.delta"]
        expected = [f"{part}.delta"] * len(deltas) + [f"{part}.done"]
        if item.type != "function_call":
            expected = ["content_part.added", *expected, "content_part.done"]
        check(f"{inner} is {expected}", inner == expected)
        for each in events[at + 1:end]:
            check("an event is of its item", each.item_id == item.id and each.output_index == index)
        done = events[end].item
        text = done.arguments if item.type == "function_call" else done.content[0].text
        check("deltas are the text", "".join(each.delta for each in deltas) == text)
        check("an item keeps its id", done.id == item.id)
        items.append(done)
        at = end + 1
    check("the response has these items", events[-1].response.output == items)


def texts():
    reply = client.responses.create(**QUESTION)
    check("an answer has text", reply.output_text and reply.output[0].type == "message")
    check("usage adds up", reply.usage.total_tokens
          == reply.usage.input_tokens + reply.usage.output_tokens)
    check("it is what the bytes say", whole(QUESTION).output_text == reply.output_text)
    events = events_of(QUESTION)
    check("a stream has the same text", events[-1].response.output_text == reply.output_text)
    check("and counts the same", events[-1].response.usage.output_tokens
          == reply.usage.output_tokens)
    with client.responses.stream(**QUESTION) as stream:
        text = "".join(each.delta for each in stream if each.type == "response.output_text.delta")
    check("the package's stream has it, too", text == reply.output_text)
    chat = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": QUESTION["input"]}], max_tokens=24,
        temperature=0)
    check("a chat has the same answer", chat.choices[0].message.content == reply.output_text)
    cut = events_of({**QUESTION, "max_output_tokens": 2})[-1]
    check("a limit is said", cut.type == "response.incomplete"
          and cut.response.incomplete_details.reason == "max_output_tokens"
          and cut.response.output[-1].status == "incomplete")


def conversations():
    first = client.responses.create(**QUESTION, instructions="Be kind.", metadata={"a": "b"})
    check("the reply repeats", first.instructions == "Be kind." and first.metadata == {"a": "b"})
    items = [{"role": "user", "content": QUESTION["input"]}, *first.output,
             {"role": "user", "content": [{"type": "input_text", "text": "And 5 + 6?"}]}]
    sent_back = client.responses.create(**{**QUESTION, "input": items}, instructions="Be kind.")
    check("nothing was stored", raises(openai.NotFoundError, client.responses.retrieve, first.id))
    kept = client.responses.create(**QUESTION, instructions="Be kind.", store=True)
    got = client.responses.retrieve(kept.id)
    check("what is stored is what was said", got.output_text == kept.output_text == first.output_text)
    after = client.responses.create(**{**QUESTION, "input": "And 5 + 6?"}, store=True,
                                    instructions="Be kind.", previous_response_id=kept.id)
    check("it goes on as if it was sent back", after.output_text == sent_back.output_text)
    _, listed = ask(f"/responses/{after.id}/input_items?order=asc")
    strict(pydantic.TypeAdapter(ResponseItemList), json.loads(listed))
    pages = client.responses.input_items.list(after.id, order="asc", limit=1)
    check("its items are the conversation", [each.type for each in pages] == ["message"] * 3)
    client.responses.delete(kept.id)
    check("deleted is deleted", raises(openai.NotFoundError, client.responses.retrieve, kept.id))
    check("nothing goes on from it", raises(openai.NotFoundError, client.responses.create, **QUESTION,
                                            previous_response_id=kept.id))


def tools():
    conversation = [{"role": "user", "content": "How is the weather?"}]
    for turn in range(6):
        body = {"model": MODEL, "input": conversation, "tools": TOOLS, "max_output_tokens": 100,
                "parallel_tool_calls": False, "extra_body": {"seed": turn},
                "tool_choice": [{"type": "function", "name": "look_up"}, "required",
                                {"type": "allowed_tools", "mode": "required",
                                 "tools": [{"type": "function", "name": "stop"}]}][turn % 3]}
        if turn % 2 == 0:
            reply = client.responses.create(**body)
        else:
            with client.responses.stream(**body) as stream:
                reply = stream.get_final_response()
        sent = {**{name: value for name, value in body.items() if name != "extra_body"},
                "seed": turn, "input": [each if isinstance(each, dict) else each.to_dict()
                                        for each in conversation]}
        calls = [each for each in reply.output if each.type == "function_call"]
        check(f"one call: {reply.output}", len(calls) == 1)
        arguments = json.loads(calls[0].arguments)
        if turn % 3 == 0:
            check("the schema is kept to", calls[0].name == "look_up"
                  and arguments["city"] in ("Bern", "Paris") and 1 <= arguments["days"] <= 14)
        if turn % 3 == 2:
            check("only the allowed one", calls[0].name == "stop")
        same = events_of(sent)[-1].response
        check("the events have the same call", [each.arguments for each in same.output
                                                if each.type == "function_call"]
              == [calls[0].arguments])
        whole(sent)
        # As users do: what has come goes back.
        conversation += reply.output
        conversation.append({"type": "function_call_output", "call_id": calls[0].call_id,
                             "output": "7"})
    last = client.responses.create(model=MODEL, input=conversation, max_output_tokens=8)
    check("an answer after the calls", last.output_text)


class Person(pydantic.BaseModel):
    name: typing.Annotated[str, pydantic.Field(max_length=8)]
    age: typing.Annotated[int, pydantic.Field(ge=0, le=150)]


def formats():
    for seed in range(3):
        parsed = client.responses.parse(model=MODEL, input="A person.", text_format=Person,
                                        max_output_tokens=120, extra_body={"seed": seed})
        check("a parsed answer", isinstance(parsed.output_parsed, Person))
    body = {"model": MODEL, "input": "A thing.", "max_output_tokens": 200, "seed": 1}
    schema = {"type": "json_schema", "name": "n", "strict": True,
              "schema": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0,
                                                                "maximum": 99}},
                         "required": ["n"], "additionalProperties": False}}
    answer = events_of({**body, "text": {"format": schema}})[-1].response
    check("the schema is kept to", 0 <= json.loads(answer.output_text)["n"] <= 99)


def likely_tokens():
    reply = whole({**QUESTION, "include": ["message.output_text.logprobs"], "top_logprobs": 3})
    logprobs = reply.output[0].content[0].logprobs
    check("each token has its likely ones", logprobs and all(len(each.top_logprobs) == 3
                                                            for each in logprobs))
    check("tokens are the text", "".join(each.token for each in logprobs) == reply.output_text)
    events = events_of({**QUESTION, "include": ["message.output_text.logprobs"], "top_logprobs": 3})
    streamed = [each.logprob for event in events if event.type == "response.output_text.delta"
                for each in event.logprobs]
    check("a stream has the same", streamed == [each.logprob for each in logprobs])


def raises(kind, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except kind:
        return True
    return False


def mistakes():
    for more, param in [({"tools": [{"type": "plugin"}]}, "tools[0].type"),
                        ({"background": True}, "background"),
                        ({"truncation": "auto"}, "truncation"),
                        ({"input": [{"role": "user", "content": [
                            {"type": "input_image", "image_url": "x", "detail": "low"}]}]},
                         "input[0].content[0].type"),
                        ({"conversation": "conv_1"}, "conversation")]:
        try:
            client.responses.create(**{**QUESTION, **more})
            check(f"{more} is refused", False)
        except openai.BadRequestError as error:
            check(f"{error} names {param}", error.param == param)


async def many():
    async with openai.AsyncOpenAI(base_url=URL, api_key=KEY, max_retries=0) as some:
        async def one():
            stream = await some.responses.create(**QUESTION, stream=True)
            return [event async for event in stream][-1].response.output_text
        answers = await asyncio.gather(*(one() for _ in range(8)))
        check("many get the same answer", len(set(answers)) == 1)


texts()
conversations()
tools()
formats()
likely_tokens()
mistakes()
asyncio.run(many())
