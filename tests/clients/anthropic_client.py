# SPDX-License-Identifier: Apache-2.0
"""Uses `wideep serve` of the reference model through the anthropic package, as its users do. Every
event of every stream, and every reply, is held against the types of the package, strictly.

    anthropic_client.py <base URL> <API key>
"""

import asyncio
import json
import sys
import urllib.request

import anthropic
import pydantic
from anthropic.types import (ErrorResponse, Message, MessageTokensCount, ModelInfo,
                             RawMessageStreamEvent)

URL, KEY = sys.argv[1].removesuffix("/v1"), sys.argv[2]
MODEL = "reference"
client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)
QUESTION = [{"role": "user", "content": "What is 3 + 4?"}]
GREEDY = {"temperature": 0}  # newer versions of the package have no argument for it
# The model knows nothing of tools, so that its calls have to be kept short by their schemas.
TOOLS = [
    {"name": "look_up", "description": "The weather.", "input_schema": {
        "type": "object", "additionalProperties": False, "required": ["city", "days"],
        "properties": {"city": {"type": "string", "enum": ["Bern", "Paris"]},
                       "days": {"type": "integer", "minimum": 1, "maximum": 14}}}},
    {"name": "stop", "input_schema": {"type": "object", "properties": {},
                                      "additionalProperties": False}},
]
event_type = pydantic.TypeAdapter(RawMessageStreamEvent)


def check(what, truth):
    if not truth:
        sys.exit(f"not so: {what}")


def ask(path, body, headers=None):
    """Without the package: the bytes that it would get."""
    data = json.dumps(body, default=lambda block: block.to_dict()).encode()
    request = urllib.request.Request(URL + path, None if body is None else data,
                                     {"x-api-key": KEY, "anthropic-version": "2023-06-01",
                                      **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def prompt_tokens(message):
    usage = message.usage
    return (usage.input_tokens + usage.cache_creation_input_tokens
            + usage.cache_read_input_tokens)


def events_of(body):
    """The events, each of a type that the package has, in the one order that is allowed."""
    status, text = ask("/v1/messages", {**body, "stream": True})
    check(f"status 200, found {status}: {text}", status == 200)
    events, open_block, num_blocks = [], None, 0
    for event in text.removesuffix("\n\n").split("\n\n"):
        name, data = event.split("\n")
        data = json.loads(data.removeprefix("data: "))
        check("an event is called by its type", name == f"event: {data['type']}")
        if data["type"] == "ping":
            continue
        events.append(event_type.validate_python(data, strict=True))
        kind = data["type"]
        check("a message starts once, first", (kind == "message_start") == (len(events) == 1))
        if kind == "content_block_start":
            check("blocks follow each other", open_block is None and data["index"] == num_blocks)
            open_block, num_blocks = num_blocks, num_blocks + 1
        if kind in ("content_block_delta", "content_block_stop"):
            check("a delta belongs to the open block", data["index"] == open_block)
        if kind == "content_block_stop":
            open_block = None
        if kind in ("message_delta", "message_stop"):
            check("all blocks have ended", open_block is None)
    check("a stream ends with its message", [each.type for each in events[-2:]]
          == ["message_delta", "message_stop"])
    return events


def messages():
    whole = client.messages.create(model=MODEL, max_tokens=20, messages=QUESTION, extra_body=GREEDY,
                                   system=[{"type": "text", "text": "You add.",
                                            "cache_control": {"type": "ephemeral"}}])
    Message.model_validate(whole.to_dict(), strict=True)
    check("a message of one text", len(whole.content) == 1 and whole.content[0].text)
    check("a request has an id", whole._request_id == "req" + whole.id.removeprefix("msg"))
    again = client.messages.create(model=MODEL, max_tokens=20, messages=QUESTION, extra_body=GREEDY,
                                   system="You add.")
    check("blocks of text are text", again.content[0].text == whole.content[0].text)
    check("cached tokens are counted once", prompt_tokens(again) == prompt_tokens(whole))
    short = client.messages.create(model=MODEL, max_tokens=2, messages=QUESTION)
    check("a limit is told", short.stop_reason == "max_tokens" and short.usage.output_tokens == 2)
    letter = whole.content[0].text[3]
    stopped = client.messages.create(model=MODEL, max_tokens=20, messages=QUESTION, extra_body=GREEDY,
                                     system="You add.", stop_sequences=[letter])
    check("a stop sequence is told", (stopped.stop_reason, stopped.stop_sequence)
          == ("stop_sequence", letter))
    begun = QUESTION + [{"role": "assistant", "content": whole.content[0].text[:8].rstrip()}]
    rest = client.messages.create(model=MODEL, max_tokens=20, extra_body=GREEDY, messages=begun)
    check("an answer goes on", rest.content[0].text)
    check("from its beginning", client.messages.count_tokens(model=MODEL, messages=begun).input_tokens
          > client.messages.count_tokens(model=MODEL, messages=QUESTION).input_tokens)


def streams():
    whole = client.messages.create(model=MODEL, max_tokens=20, messages=QUESTION, extra_body=GREEDY)
    with client.messages.stream(model=MODEL, max_tokens=20, messages=QUESTION,
                                extra_body=GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    check("a stream has the same text", text == whole.content[0].text == final.content[0].text)
    check("and the same end", final.stop_reason == whole.stop_reason)
    check("and counts the same", final.usage.output_tokens == whole.usage.output_tokens)
    check("with the cache", prompt_tokens(final) == prompt_tokens(whole))
    check("each token is an event", len(events_of(
        {"model": MODEL, "max_tokens": 20, "messages": QUESTION})) > 10)


def counts():
    whole = client.messages.create(model=MODEL, max_tokens=1, messages=QUESTION, tools=TOOLS)
    count = client.messages.count_tokens(model=MODEL, messages=QUESTION, tools=TOOLS)
    MessageTokensCount.model_validate(count.to_dict(), strict=True)
    check("tokens are counted as they are used", count.input_tokens == prompt_tokens(whole))


def agent():
    """Ten turns with tools, whole and streamed; each call and its result go back."""
    turns = list(QUESTION)
    for turn in range(10):
        choice = {"type": "any", "disable_parallel_tool_use": True}
        if turn % 3 == 2:
            choice = {"type": "tool", "name": "look_up", "disable_parallel_tool_use": True}
        options = {"model": MODEL, "max_tokens": 100, "messages": turns, "tools": TOOLS,
                   "tool_choice": choice}
        if turn % 2:
            events_of(options)
            with client.messages.stream(**options) as stream:
                reply = stream.get_final_message()
        else:
            reply = client.messages.create(**options)
            Message.model_validate(reply.to_dict(), strict=True)
        check("a call ends the message", reply.stop_reason == "tool_use")
        calls = [each for each in reply.content if each.type == "tool_use"]
        check("there is one call", len(calls) == 1)
        call = calls[0]
        check("of a tool", call.name in ("look_up", "stop"))
        if turn % 3 == 2:
            check("of the one that was chosen", call.name == "look_up")
        if call.name == "look_up":
            check("with arguments of its schema", call.input["city"] in ("Bern", "Paris")
                  and 1 <= call.input["days"] <= 14)
        turns.append({"role": "assistant", "content": reply.content})
        turns.append({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": call.id, "is_error": turn % 2 == 1,
             "content": [{"type": "text", "text": "7"}]}]})
    ids = {block.id for turn in turns if turn["role"] == "assistant" for block in turn["content"]
           if block.type == "tool_use"}
    check("each call has an id of its own", len(ids) == 10)


class Mood(pydantic.BaseModel):
    merry: bool
    calm: bool


def formats():
    schema = {"type": "object", "additionalProperties": False, "required": ["merry", "calm"],
              "properties": {"merry": {"type": "boolean"}, "calm": {"type": "boolean"}}}
    reply = client.messages.create(model=MODEL, max_tokens=60, messages=QUESTION, output_config={
        "format": {"type": "json_schema", "schema": schema}})
    Mood.model_validate_json(reply.content[0].text, strict=True)
    parsed = client.messages.parse(model=MODEL, max_tokens=60, messages=QUESTION, output_format=Mood)
    check("the package parses it", isinstance(parsed.parsed_output, Mood))


def what_agents_send():
    """Fields and headers of command-line agents."""
    with client.beta.messages.stream(
            model=MODEL, max_tokens=32000, betas=["context-management-2025-06-27"],
            stop_sequences=["e"], metadata={"user_id": "u"}, thinking={"type": "adaptive"},
            system=[{"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=12ab3;"}],
            messages=[{"role": "user", "content": [
                {"type": "text", "text": "<system-reminder>\nBe short.\n</system-reminder>"},
                {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]},
                      {"role": "system", "content": "No agents are there."}],
            context_management={"edits": [{"type": "clear_tool_uses_20250919"}]},
            output_config={"effort": "medium"}) as stream:
        check("they get a message", stream.get_final_message().stop_reason == "stop_sequence")


def errors():
    def refusal(kind, **options):
        try:
            client.messages.create(**{"model": MODEL, "max_tokens": 8, "messages": QUESTION, **options})
        except kind as error:
            ErrorResponse.model_validate(error.body, strict=True)
            check("errors have the id of the request", error.request_id == error.body["request_id"])
            return error.body["error"]["message"]
        sys.exit(f"not so: {options} is refused")

    check("another model", "reference" in refusal(anthropic.NotFoundError, model="other"))
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    check("an image", refusal(anthropic.BadRequestError, messages=[
        {"role": "user", "content": [image]}]).startswith("messages[0].content[0].type: "))
    check("a tool of the service", "web_search_20250305" in refusal(
        anthropic.BadRequestError, tools=[{"type": "web_search_20250305", "name": "web_search"}]))
    check("a prompt that is too long", refusal(anthropic.BadRequestError, messages=[
        {"role": "user", "content": "7 + " * 40000}]).startswith("prompt is too long: "))
    stranger = anthropic.Anthropic(base_url=URL, api_key="wrong", max_retries=0)
    try:
        stranger.messages.create(model=MODEL, max_tokens=1, messages=QUESTION)
        sys.exit("not so: a key is asked for")
    except anthropic.AuthenticationError:
        pass
    bearer = anthropic.Anthropic(base_url=URL, auth_token=KEY, max_retries=0)
    bearer.messages.count_tokens(model=MODEL, messages=QUESTION)


def models():
    status, text = ask("/v1/models", None)
    check("status 200", status == 200)
    for model in json.loads(text)["data"]:
        ModelInfo.model_validate(model)
    check("the model", [each.id for each in client.models.list()] == [MODEL])
    check("by its name", client.models.retrieve(MODEL).id == MODEL)


async def many_at_once():
    friend = anthropic.AsyncAnthropic(base_url=URL, api_key=KEY, max_retries=0)

    async def one(index):
        async with friend.messages.stream(model=MODEL, max_tokens=16, extra_body=GREEDY, messages=[
                {"role": "user", "content": f"What is {index} + 1?"}]) as stream:
            return await stream.get_final_text()
    texts = await asyncio.gather(*(one(i % 4) for i in range(16)))
    check("equal questions have equal answers", all(
        text == texts[i % 4] for i, text in enumerate(texts)))


messages()
streams()
counts()
agent()
formats()
what_agents_send()
errors()
models()
asyncio.run(many_at_once())
