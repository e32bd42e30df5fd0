# SPDX-License-Identifier: Apache-2.0
"""Chats, completions, streams, likely tokens, structured answers, an agent's calls of tools, errors,
64 requests at once; and `/metrics` through `prometheus_client`.

    openai_client.py <base URL> <API key>
"""

import asyncio
import json
import sys
import typing
import urllib.request

import openai
import pydantic
from prometheus_client.parser import text_string_to_metric_families

URL, KEY = sys.argv[1:]
MODEL = "reference"
client = openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0)


def check(what, truth):
    if not truth:
        sys.exit(f"not so: {what}")


def chats():
    question = [{"role": "user", "content": "Das Programm"}]
    whole = client.chat.completions.create(model=MODEL, messages=question, max_tokens=20,
                                           temperature=0, logprobs=True)
    choice = whole.choices[0]
    check("a chat has an answer", choice.message.role == "assistant" and choice.message.content)
    check("each token has a logprob", len(choice.logprobs.content) == whole.usage.completion_tokens)
    check("usage adds up", whole.usage.total_tokens
          == whole.usage.prompt_tokens + whole.usage.completion_tokens)
    text, usage = "", None
    for chunk in client.chat.completions.create(model=MODEL, messages=question, max_tokens=20,
                                                temperature=0, stream=True,
                                                stream_options={"include_usage": True}):
        text += "".join(each.delta.content or "" for each in chunk.choices)
        usage = chunk.usage or usage
    check("a stream has the same text", text == choice.message.content)
    check("and counts the same", usage.completion_tokens == whole.usage.completion_tokens)


def completions():
    both = client.completions.create(model=MODEL, prompt=["Once", "Def"], max_tokens=8, n=2, seed=3)
    check("two answers to two prompts", [each.index for each in both.choices] == [0, 1, 2, 3])
    again = client.completions.create(model=MODEL, prompt=["Once", "Def"], max_tokens=8, n=2, seed=3)
    check("a seed draws the same", [each.text for each in both.choices]
          == [each.text for each in again.choices])


def likely_tokens():
    question = [{"role": "user", "content": "Das Programm"}]
    chat = client.chat.completions.create(model=MODEL, messages=question, max_tokens=8, temperature=0,
                                          logprobs=True, top_logprobs=20)
    for token in chat.choices[0].logprobs.content:
        values = [each.logprob for each in token.top_logprobs]
        check("20 likely tokens, in order", len(values) == 20 and values == sorted(values)[::-1])
        check("the most likely token is the chosen one", token.top_logprobs[0].bytes == token.bytes
              and values[0] == token.logprob)
    plain = client.completions.create(model=MODEL, prompt="Once", max_tokens=8, seed=5)
    with_logprobs = client.completions.create(model=MODEL, prompt="Once", max_tokens=8, seed=5, logprobs=3)
    check("asking changes nothing", plain.choices[0].text == with_logprobs.choices[0].text)
    logprobs = with_logprobs.choices[0].logprobs
    for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs):
        check("3 likely tokens and the chosen one", token in top and 1 <= len(top) <= 4)
        check("no token is more likely than the most likely one", logprob <= max(top.values()))


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=150)
    mood: typing.Literal["calm", "merry"] | None
    scores: list[typing.Annotated[float, pydantic.Field(ge=0, lt=10)]] = \
        pydantic.Field(min_length=1, max_length=3)


def formats():
    question = [{"role": "user", "content": "Das Programm"}]
    several = client.chat.completions.parse(model=MODEL, messages=question, max_tokens=200, n=4, seed=1,
                                             temperature=1,
                                            response_format=Person)
    for choice in several.choices:
        check("an answer is a person", isinstance(choice.message.parsed, Person))
    check("answers differ", len({choice.message.content for choice in several.choices}) > 1)
    with client.chat.completions.stream(model=MODEL, messages=question, max_tokens=200,
                                        temperature=0, response_format=Person) as stream:
        check("a stream is a person", isinstance(stream.get_final_completion().choices[0].message.parsed,
                                                 Person))
    for kind, value, fits in [("guided_choice", ["yes", "no"], lambda text: text in ("yes", "no")),
                              ("guided_regex", "[ab]{3}", lambda text: len(text) == 3),
                              ("structured_outputs", {"grammar": 'root ::= "x" [0-9] "!"'},
                               lambda text: text.startswith("x") and text.endswith("!"))]:
        reply = client.completions.create(model=MODEL, prompt="Once", max_tokens=20, seed=2,
                                          extra_body={kind: value})
        check(f"{kind} is followed", fits(reply.choices[0].text))
        check(f"{kind} ends the answer", reply.choices[0].finish_reason == "stop")


def agent():
    """Ten turns with three tools, of which one must be called each time; every other one streamed."""
    number = {"type": "integer", "minimum": 0, "maximum": 99}
    tools = [{"type": "function", "function": {"name": name, "parameters": {
        "type": "object", "properties": properties, "required": list(properties)}}}
        for name, properties in {"add": {"a": number, "b": number}, "mark": {"on": {"type": "boolean"}},
                                 "paint": {"color": {"enum": ["red", "green \"1\""]}}}.items()]
    messages = [{"role": "user", "content": "What is 3 + 4?"}]
    for turn in range(10):
        request = dict(model=MODEL, messages=messages, tools=tools, tool_choice="required",
                       parallel_tool_calls=False, max_tokens=100, seed=turn)
        if turn % 2:
            with client.chat.completions.stream(**request) as events:
                choice = events.until_done().get_final_completion().choices[0]
        else:
            choice = client.chat.completions.create(**request).choices[0]
        check("a call ends the answer", choice.finish_reason == "tool_calls")
        [call] = choice.message.tool_calls
        [properties] = [each["function"]["parameters"]["properties"] for each in tools
                        if each["function"]["name"] == call.function.name]
        check("arguments are those of the tool",
              set(json.loads(call.function.arguments)) == set(properties))
        messages.append({"role": "assistant", "content": choice.message.content,
                         "tool_calls": [{"id": call.id, "type": "function", "function": {
                             "name": call.function.name, "arguments": call.function.arguments}}]})
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "7"})


def refusals():
    def refused(kind, **request):
        try:
            client.completions.create(prompt="x", **request)
        except kind as error:
            return error
        return sys.exit(f"not refused: {request}")

    check("an unknown model", refused(openai.NotFoundError, model="x").code == "model_not_found")
    check("a wrong value", refused(openai.BadRequestError, model=MODEL, n=0).param == "n")
    nonsense = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "x"}}}
    error = refused(openai.BadRequestError, model=MODEL, extra_body={"response_format": nonsense})
    check("a schema that is none", "#/type" in error.message)
    check("too many logprobs", refused(openai.BadRequestError, model=MODEL, logprobs=6).param == "logprobs")
    try:
        openai.OpenAI(base_url=URL, api_key="wrong", max_retries=0).models.list()
        sys.exit("a wrong key is taken")
    except openai.AuthenticationError:
        pass


async def many():
    several = openai.AsyncOpenAI(base_url=URL, api_key=KEY, max_retries=0)

    async def ask(i):
        reply = await several.completions.create(model=MODEL, prompt=f"Number {i % 5}",
                                                 max_tokens=16, temperature=0)
        return i % 5, reply.choices[0].text

    answers = await asyncio.gather(*[ask(i) for i in range(64)])
    check("64 at once: one answer to a prompt", len(set(answers)) == 5)


def metrics():
    request = urllib.request.Request(URL.removesuffix("/v1") + "/metrics",
                                     headers={"Authorization": f"Bearer {KEY}"})
    text = urllib.request.urlopen(request).read().decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    check("tokens are counted", families["wideep_generated_tokens"].samples[0].value > 1000)
    check("nobody runs", families["wideep_answers_running"].samples[0].value == 0)
    for name in "num_requests_running", "num_requests_waiting", "kv_cache_utilization":
        family = families["wideep_" + name]
        check(f"{name} is a gauge, and nothing", (family.type, family.samples[0].value) == ("gauge", 0))
    check("pages are there", families["wideep_kv_pages"].samples[0].value > 0)
    for name in "cached_prompts", "cached_prompt_tokens", "prompt_tokens":
        check(f"{name} is a counter", families["wideep_" + name].type == "counter")


check("the model is listed", [each.id for each in client.models.list()] == [MODEL])
check("and found by name", client.models.retrieve(MODEL).id == MODEL)
chats()
completions()
likely_tokens()
formats()
agent()
refusals()
asyncio.run(many())
metrics()
