# SPDX-License-Identifier: Apache-2.0
"""What `wideep bench accuracy` runs with the Python that has lm_eval: its local-completions client
against one server. All that the server answers is recorded beside lm_eval's figures, because
figures are sums, and equal sums do not show equal log-probabilities.

    python -c <this text> <file with the options> <file for the result>
"""
import json
import sys

import requests

from importlib.metadata import version
from lm_eval import simple_evaluate
from lm_eval.models import api_models
from lm_eval.tasks import TaskManager
from lm_eval.utils import make_table


class Recorder:
    """The module `requests`, as lm_eval's client calls it; keeps prompts and answers in order."""

    def __init__(self):
        self.recorded = []

    def __getattr__(self, name):
        return getattr(requests, name)

    def post(self, url, **options):
        reply = requests.post(url, **options)
        if reply.ok:
            self.record(options["json"]["prompt"], reply.json()["choices"])
        return reply

    def record(self, prompts, choices):
        is_one = isinstance(prompts, str) or isinstance(prompts[0], int)
        prompts = [prompts] if is_one else prompts
        for prompt, choice in zip(prompts, sorted(choices, key=lambda each: each["index"])):
            logprobs = choice.get("logprobs") or {}
            self.recorded.append({
                "prompt": prompt,
                "text": choice["text"],
                "token_logprobs": logprobs.get("token_logprobs", []),
                "top_logprobs": logprobs.get("top_logprobs", []),
            })


def main():
    with open(sys.argv[1]) as file:
        options = json.load(file)
    base = options["url"]
    info = requests.get(base + "/tokenizer_info", timeout=60).json()
    recorder = api_models.requests = Recorder()
    evaluated = simple_evaluate(
        model="local-completions",
        model_args={
            "model": options["model"],
            "base_url": base + "/v1/completions",
            "tokenizer_backend": "remote",
            "tokenized_requests": True,
            "max_length": info["max_model_len"],
            "max_retries": 1,
        },
        tasks=options["tasks"],
        batch_size=options["batch_size"],
        limit=options["limit"],
        task_manager=TaskManager(include_path=options["include_path"]),
    )
    # Values that JSON has no form for, such as functions among a task's settings, are left out.
    results = {task: {name: value for name, value in figures.items()
                      if isinstance(value, (int, float, str))}
               for task, figures in evaluated["results"].items()}
    with open(sys.argv[2], "w") as file:
        json.dump({"version": version("lm_eval"), "table": make_table(evaluated),
                   "results": results, "requests": recorder.recorded}, file, allow_nan=False)


if __name__ == "__main__":
    main()
