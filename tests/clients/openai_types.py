# SPDX-License-Identifier: Apache-2.0
"""Every reply, chunk and error has the form of the openai package's types, and nothing else.

    openai_types.py <base URL> <API key>

The package itself takes replies as they come; here a key that lacks, one of another type and one
that is not known are mistakes. KNOWN_EXTENSIONS are the documented ones (docs/serve.md).
"""

import json
import sys
import urllib.error
import urllib.request

import pydantic
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.shared import ErrorObject

KNOWN_EXTENSIONS = {"message.reasoning", "message.reasoning_content", "delta.reasoning",
                    "delta.reasoning_content", "max_model_len"}
# The API has these always, null where there is nothing; the package has null as their default.
ALWAYS = {"chat.completion": {"message": ["role", "content", "refusal"],
                              "choices": ["index", "message", "logprobs", "finish_reason"]},
          "chat.completion.chunk": {"choices": ["index", "delta", "finish_reason"]},
          "text_completion": {"choices": ["index", "text", "logprobs", "finish_reason"]}}


def unknown_keys(value, name=""):
    """The keys of a model, and of all models in it, that its type does not have."""
    if isinstance(value, pydantic.BaseModel):
        for key in value.model_extra or {}:
            path = f"{name}.{key}" if name else key
            if path not in KNOWN_EXTENSIONS:
                yield path
        for key in type(value).model_fields:
            yield from unknown_keys(getattr(value, key), key)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from unknown_keys(each, name)


def missing_keys(value, always, name=""):
    if isinstance(value, dict):
        yield from (f"{name}.{key}" for key in always.get(name, []) if key not in value)
        for key, each in value.items():
            yield from missing_keys(each, always, key)
    elif isinstance(value, list):
        for each in value:
            yield from missing_keys(each, always, name)


def check(kind, text):
    """The JSON text as a model; ends the program if it is none."""
    try:
        model = kind.model_validate_json(text, strict=True)
    except pydantic.ValidationError as error:
        sys.exit(f"not a {kind.__name__}: {error}\n{text}")
    unknown = sorted(set(unknown_keys(model)))
    raw = json.loads(text)
    missing = sorted(set(missing_keys(raw, ALWAYS.get(raw.get("object"), {}))))
    if unknown or missing:
        sys.exit(f"a {kind.__name__} has {unknown} and lacks {missing}:\n{text}")
    return model


def ask(path, body=None):
    """Status and text of a reply."""
    data = None if body is None else json.dumps({"model": "reference", **body}).encode()
    request = urllib.request.Request(URL + path, data, {"Authorization": f"Bearer {KEY}",
                                                        "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def whole(kind, path, body):
    status, text = ask(path, body)
    if status != 200:
        sys.exit(f"{body}: {status} {text}")
    return check(kind, text)


def stream(kind, path, body):
    status, text = ask(path, {**body, "stream": True})
    events = [line.removeprefix("data: ") for line in text.split("\n") if line]
    if status != 200 or events[-1] != "[DONE]" or not text.startswith("data: "):
        sys.exit(f"{body}: no stream: {status} {text}")
    # The API has null for a completion that goes on, the types do not.
    going_on = '"finish_reason":null' if kind is Completion else "nothing"
    return [check(kind, event.replace(going_on, '"finish_reason":"stop"')) for event in events[:-1]]


def chats():
    chat = {"messages": [{"role": "user", "content": "Das Programm"}], "max_tokens": 12, "seed": 1}
    number = {"type": "integer", "minimum": 0, "maximum": 99}
    tools = [{"type": "function", "function": {"name": "add", "parameters": {
        "type": "object", "properties": {"a": number}, "required": ["a"]}}}]
    call = {"tools": tools, "tool_choice": "required", "max_tokens": 100}
    for more in [{}, {"n": 3}, {"logprobs": True, "top_logprobs": 2}, {"stop": ["e"]}, call,
                 {**call, "parallel_tool_calls": False}, {"response_format": {"type": "json_object"}},
                 {"presence_penalty": 1, "logit_bias": {"5": 2}, "service_tier": "auto"}]:
        path, body = "/chat/completions", {**chat, **more}
        reply = whole(ChatCompletion, path, body)
        chunks = stream(ChatCompletionChunk, path, body)
        with_usage = stream(ChatCompletionChunk, path,
                            {**body, "stream_options": {"include_usage": True}})
        for choice in reply.choices:
            deltas = [each.delta for chunk in chunks for each in chunk.choices
                      if each.index == choice.index]
            if "".join(each.content or "" for each in deltas) != (choice.message.content or ""):
                sys.exit(f"{body}: the stream has another text")
        if [len(each.choices) for each in with_usage][-1:] != [0] or with_usage[-1].usage is None:
            sys.exit(f"{body}: the last chunk has no usage")
        if any(each.usage for each in with_usage[:-1]):
            sys.exit(f"{body}: usage before the end")
        if "tools" in more and not reply.choices[0].message.tool_calls:
            sys.exit(f"{body}: no call")


def completions():
    completion = {"prompt": ["Once", "Def"], "max_tokens": 6, "seed": 1}
    for more in [{}, {"n": 2}, {"logprobs": 3}, {"stop": "e"}, {"prompt": [1, 2, 3]}]:
        body = {**completion, **more}
        whole(Completion, "/completions", body)
        stream(Completion, "/completions", body)
        stream(Completion, "/completions", {**body, "stream_options": {"include_usage": True}})


def errors():
    for path, body, wanted in [("/chat/completions", {}, 400), ("/completions", {"prompt": 5}, 400),
                               ("/chat/completions", {"model": "x"}, 400), ("/nothing", {}, 404),
                               ("/completions", {"prompt": "x", "model": "x"}, 404),
                               ("/models/x", None, 404), ("/completions", None, 405)]:
        status, text = ask(path, body)
        if status != wanted or list(json.loads(text)) != ["error"]:
            sys.exit(f"{path} {body}: {status} {text}")
        check(ErrorObject, json.dumps(json.loads(text)["error"]))


def models():
    listed = json.loads(ask("/models")[1])
    if set(listed) != {"object", "data"}:
        sys.exit(f"/models: {listed}")
    for each in listed["data"]:
        check(Model, json.dumps(each))
    check(Model, ask("/models/reference")[1])


def mistakes_are_found():
    """What is checked above can fail."""
    good = json.loads(ask("/completions", {"prompt": "x", "max_tokens": 1})[1])
    for change in [{"more": 1}, {"id": 5}, {"choices": [{**good["choices"][0], "tokens": 1}]}]:
        try:
            check(Completion, json.dumps({**good, **change}))
        except SystemExit:
            continue
        sys.exit(f"taken: {change}")
    del good["choices"][0]["logprobs"]
    try:
        check(Completion, json.dumps(good))
    except SystemExit:
        return
    sys.exit("taken without logprobs")


if __name__ == "__main__":
    URL, KEY = sys.argv[1:]
    chats()
    completions()
    errors()
    models()
    mistakes_are_found()
