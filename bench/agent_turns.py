#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An agent of ten turns: how many tokens of each prompt are computed, beside how many are new.

    bench/agent_turns.py --wideep build/wideep --model DIR
    bench/agent_turns.py --wideep build/wideep --config bench/configs/qwen3-next-1.9b.json
    bench/agent_turns.py --url http://127.0.0.1:8000
    bench/agent_turns.py --wideep build/wideep --model DIR --llama-server llama-server --llama-model F.gguf

A system prompt with tools, calls and their results, thinking that the template leaves out of earlier
turns, and last messages that are edited and sent again. New are the tokens behind the longest prefix
that an earlier turn had, in its prompt or its answer. The goal is at most a page, 64 tokens, more. Ends
with 1 if a turn of wideep is over it.

With --config weights are random, which say nothing of use: the agent goes on as if the answer had been a
thought and a call of a tool. llama.cpp does not tell an answer's tokens: only prompts count as known.
"""

import argparse
import json
import pathlib
import random
import sys
import tempfile

from served import Server, model_name, model_options, post, print_table

PAGE = 64
WORDS = ("read write list file folder line pattern result error branch commit test build run value name path "
         "count begin end text number search replace open close check report server model token page").split()


def sentence(rng, words):
    return " ".join(rng.choice(WORDS) for _ in range(words)) + "."


def make_tools(rng, count):
    return [{"type": "function", "function": {
        "name": f"tool_{i}", "description": sentence(rng, 60),
        "parameters": {"type": "object", "required": ["path"], "properties": {
            "path": {"type": "string", "description": sentence(rng, 20)},
            "limit": {"type": "integer", "description": sentence(rng, 15)}}}}} for i in range(count)]


class Wideep:
    label = "wideep"

    def __init__(self, url):
        self.url, self.model = url, model_name(url)

    def count(self, text):
        return len(post(self.url + "/tokenize", {"model": self.model, "prompt": text})["tokens"])

    def ask(self, messages, tools, max_tokens):
        """The message, the prompt's and the answer's tokens, and how many were computed."""
        answer = post(self.url + "/v1/chat/completions", {
            "model": self.model, "messages": messages, "tools": tools, "max_tokens": max_tokens,
            "temperature": 0, "return_token_ids": True})
        usage, choice = answer["usage"], answer["choices"][0]
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return (choice["message"], answer["prompt_token_ids"], choice.get("token_ids") or [],
                usage["prompt_tokens"] - cached)


class Llama:
    label = "llama.cpp"

    def __init__(self, url):
        self.url = url

    def count(self, text):
        return len(post(self.url + "/tokenize", {"content": text})["tokens"])

    def ask(self, messages, tools, max_tokens):
        body = {"messages": messages, "tools": tools}
        prompt = post(self.url + "/apply-template", body)["prompt"]
        tokens = post(self.url + "/tokenize",
                      {"content": prompt, "add_special": True, "parse_special": True})["tokens"]
        answer = post(self.url + "/v1/chat/completions",
                      {**body, "max_tokens": max_tokens, "temperature": 0, "cache_prompt": True})
        return answer["choices"][0]["message"], tokens, [], answer["timings"]["prompt_n"]


class Agent:
    """What is said in each turn: the same to every server, but for the answers."""

    def __init__(self, server, args):
        self.server, self.args = server, args
        self.rng = random.Random(args.seed)
        self.tools = make_tools(self.rng, 4)
        while server.count(json.dumps(self.tools)) < args.system_tokens * 3 // 4:
            self.tools += make_tools(self.rng, len(self.tools))[:max(1, len(self.tools) // 4)]
        system = "You are an agent."
        while server.count(system) < args.system_tokens // 4:
            system += " " + sentence(self.rng, 40)
        self.messages = [{"role": "system", "content": system}]
        self.call = None
        self.seen = []  # token ids of turns

    def next_messages(self, turn):
        """Turns 4 and 8 edit the last message and ask again; others go on from the answer."""
        if turn in (3, 7):
            while self.messages[-1]["role"] == "assistant":
                self.messages.pop()
            self.messages[-1]["content"] = f"Edited: {sentence(self.rng, 30)} {self.messages[-1]['content'][-200:]}"
            return "last message edited"
        if self.call:
            self.messages.append({"role": "tool", "tool_call_id": self.call,
                                  "content": sentence(self.rng, self.rng.choice([20, 150, 400]))})
            return "result of a tool"
        self.messages.append({"role": "user", "content": sentence(self.rng, 40)})
        return "user"

    def take(self, turn, message):
        if self.args.config:
            message = {"role": "assistant", "content": f"<think>\n{sentence(self.rng, 50)}\n</think>\n\n"
                                                       f"{sentence(self.rng, 10)}"}
            if turn % 5 != 4:
                message["tool_calls"] = [{"id": f"call_{turn}", "type": "function", "function": {
                    "name": "tool_0", "arguments": json.dumps({"path": sentence(self.rng, 3)})}}]
        calls = message.get("tool_calls") or []
        self.call = calls[0]["id"] if calls else None
        kept = {key: message[key] for key in ("role", "content", "reasoning_content", "tool_calls")
                if message.get(key)}
        kept.setdefault("content", "")
        self.messages.append(kept)

    def known(self, prompt):
        """Of the prompt's first tokens, as many as an earlier turn had."""
        best = 0
        for earlier in self.seen:
            length = 0
            for a, b in zip(earlier, prompt):
                if a != b:
                    break
                length += 1
            best = max(best, length)
        return best

    def run(self):
        rows = []
        for turn in range(self.args.turns):
            what = self.next_messages(turn)
            message, prompt, answer, computed = self.server.ask(self.messages, self.tools, self.args.max_tokens)
            new = len(prompt) - self.known(prompt)
            self.seen.append(prompt + answer[:-1])  # nobody has computed what follows the last one
            rows.append({"turn": turn + 1, "what": what, "prompt": len(prompt), "new": new,
                         "computed": computed, "goal": new + PAGE, "ok": computed <= new + PAGE})
            self.take(turn, message)
        return rows


def report(label, rows):
    print(f"\n{label}")
    print_table(["turn", "", "prompt", "new", "computed", "goal", ""],
                [[row["turn"], row["what"], row["prompt"], row["new"], row["computed"], row["goal"],
                  "ok" if row["ok"] else "over"] for row in rows], )


def started(args, work):
    """(client, server or None) of each that is asked for."""
    if args.url:
        yield Wideep(args.url), None
    else:
        server = Server([args.wideep, "serve", "--port", "{port}", *model_options(args, work),
                         "--tool-call-parser", args.tool_call_parser, *args.option], pathlib.Path(work) / "serve.log")
        yield Wideep(server.url), server
    if args.llama_server:
        server = Server([args.llama_server, "-m", args.llama_model, "--host", "127.0.0.1", "--port", "{port}",
                         "-c", str(args.context), "-np", "1", "--jinja"], pathlib.Path(work) / "llama.log")
        yield Llama(server.url), server


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="of a wideep serve that runs")
    parser.add_argument("--wideep", help="the command, to start a server")
    parser.add_argument("--model")
    parser.add_argument("--config", help="a config.json, with random weights")
    parser.add_argument("--option", action="append", default=[], help="of wideep serve; several times")
    parser.add_argument("--tool-call-parser", default="hermes")
    parser.add_argument("--llama-server", help="the command, to compare with; needs --llama-model")
    parser.add_argument("--llama-model", help="the same model as GGUF file")
    parser.add_argument("--context", type=int, default=32768, help="of llama-server")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--system-tokens", type=int, default=4000, help="of system prompt and tools, about")
    parser.add_argument("--max-tokens", type=int, default=48, help="of an answer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="a file for the figures")
    args = parser.parse_args()
    if not args.url and not (args.wideep and (args.model or args.config)):
        parser.error("expected --url, or --wideep with --model or --config")
    if args.llama_server and not args.llama_model:
        parser.error("--llama-server needs --llama-model")
    figures = {}
    with tempfile.TemporaryDirectory() as work:
        for client, server in started(args, work):
            try:
                figures[client.label] = Agent(client, args).run()
            finally:
                if server:
                    server.stop()
            report(client.label, figures[client.label])
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(figures, indent=1))
    over = [row["turn"] for row in figures["wideep"] if not row["ok"]]
    if over:
        sys.exit(f"over the goal of new + {PAGE} tokens: turns {', '.join(map(str, over))}")


if __name__ == "__main__":
    main()
