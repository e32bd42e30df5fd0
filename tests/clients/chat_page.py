# SPDX-License-Identifier: Apache-2.0
"""Uses the chat page of wideep serve as a person does, in headless Chromium: against the real
server, and with texts that are written beforehand (scripted_server.py).

    chat_page.py <URL of the server> <API key> <work directory> [--axe axe.min.js] [--pictures folder]
"""

import argparse
import json
import pathlib
import sys
import urllib.request

from browser import Browser
from injections import INJECTIONS
from scripted_server import ScriptedServer

SAMPLE = """Here is a **plan**, with `inline code`:

1. Read the rows.
2. Sum them by rank:

```python
def loads(rows: list[tuple[int, float]]) -> dict[int, float]:
\t# one number for each rank
\ttotal = {}
\tfor rank, load in rows:
\t\ttotal[rank] = total.get(rank, 0.0) + load
\treturn total
```

| rank | load | share |
|-----:|-----:|------:|
| 0 | 412 | 0.26 |
| 1 | 398 | 0.25 |

> Ranks with more load wait for nobody; the others wait for them.

More in [the guide](https://example.org/guide). Done: a < b && c > d.
"""
THOUGHT = "The user wants a sum by rank.\nA dictionary will do."

# Before any script of the page: what must never be called.
WATCH = """window.ran = []; window.violations = [];
for (const name of ["alert", "confirm", "prompt", "eval"]) window[name] = (...all) => window.ran.push(name + all);
addEventListener("securitypolicyviolation", (event) => violations.push(event.effectiveDirective + " " + event.blockedURI));"""

# What is wrong with what is shown: elements and attributes that nothing of a model may have.
FAULTS = """((root) => {
  const faults = [...root.querySelectorAll("script,style,iframe,object,embed,form,input,svg,math,img,video,audio,base,meta,link,template,marquee,area")]
      .filter((each) => each.closest(".md, .proof")).map((each) => each.outerHTML.slice(0, 80));
  for (const each of root.querySelectorAll(".md *, .proof *")) {
    if (each.closest(".code-head") || each.matches(".code, .wide-table")) continue;
    for (const {name, value} of each.attributes) {
      if (/^(on|style$|id$|name$|src|ping$|formaction$)/.test(name)) faults.push(name + "=" + value);
      if (name === "class" && !/^(language-|hl-)/.test(value)) faults.push("class=" + value);
      if (/href/.test(name) && !/^(https?:\\/\\/|mailto:)/.test(value)) faults.push(name + "=" + value);
    }
  }
  return faults;
})"""


def check(what, truth):
    if not truth:
        sys.exit(f"not so: {what}")


class Page:
    def __init__(self, browser, url):
        self.browser = browser
        browser.events.clear()
        browser.open(url)
        check("the page begins", browser.wait_for("document.readyState === 'complete' && typeof begin === 'function' && document.querySelector('#conversations li')"))

    def run(self, script):
        return self.browser.run(script)

    def wait(self, what, condition, seconds=20):
        if not self.browser.wait_for(condition, seconds):
            print(self.run("document.querySelector('#messages').innerText + ' | ' + document.querySelector('#notices').innerText"))
            sys.exit(f"not so: {what}")

    def write(self, text):
        self.run("byId('text').focus()")
        self.browser.call("Input.insertText", text=text)

    def send(self, text, waits=True):
        self.write(text)
        self.browser.press("Enter", 13, text="\r")
        if waits:
            self.wait(f"the answer to {text!r} ends", "running === null && document.querySelector('.message:last-child .actions')")

    def last(self):
        return self.run("document.querySelector('.message:last-child').innerText")

    def press(self, label, place="last-child"):
        self.run(f"document.querySelector('.message:{place} [aria-label=\"{label}\"]').click()")


def read_page(url):
    with urllib.request.urlopen(url + "/") as reply:
        headers = [(name, value) for name, value in reply.getheaders()
                   if name.lower() not in ("content-length", "content-type", "connection", "date")]
        check("the header has a policy for scripts without exceptions",
              "unsafe" not in dict(headers)["Content-Security-Policy"] and "script-src 'sha256-" in dict(headers)["Content-Security-Policy"])
        return reply.read(), headers


def against_real_server(browser, url, key):
    page = Page(browser, url + "/")
    page.wait("the page asks for the key", "byId('key-dialog').open")
    for each, what in (("wrong", "a wrong key is refused"), (key, "")):
        page.run(f"byId('key').value = {json.dumps(each)}; byId('key-form').requestSubmit()")
        if what:
            page.wait(what, "byId('key-dialog').open && /refuses/.test(byId('key-error').innerText)")
    page.wait("the model is named", "byId('model-name').innerText === 'reference'")
    check("the context is told", page.run("/tokens of context/.test(byId('welcome-facts').innerText)"))
    page.run("settings.sampling.max_tokens = 24; settings.sampling.temperature = 0; settings.system = 'Be short.'; keepSettings(); startNew()")
    page.send("What is 3 + 4?")
    check(f"an answer with its speed: {page.last()}", page.run("current.messages[1].content !== '' && !current.messages[1].error"))
    check(f"tokens per second and the cached share: {page.last()}",
          page.run("/tokens\\/s · 24 tokens · .*% of \\d+ prompt tokens cached/.test(document.querySelector('.stats').innerText)"))
    check("cut at the most tokens", page.run("current.messages[1].cut === true"))
    page.press("Regenerate")
    page.wait("two answers", "running === null && /2 of 2/.test(document.querySelector('.message:last-child').innerText)")
    check("the same answer at temperature 0", page.run("current.messages[1].content === current.messages[2].content"))
    page.press("The one before")
    check("the first of two", page.run("/1 of 2/.test(document.querySelector('.message:last-child').innerText)"))
    page.send("And 5 + 6?")
    check("the second turn follows the first answer", page.run("pathOf(current).length === 4 && pathOf(current)[1].id === current.messages[1].id"))
    check("tokens are known", page.run("current.messages.at(-1).tokens.length > 40"))
    # Which experts have answered: the dashboard draws as many tokens as were fed.
    page.run("openExperts = ((open) => (message) => { window.open = (url) => { opened = String(url); }; open(message); })(openExperts); window.opened = ''")
    page.run("document.querySelector('.message:last-child [aria-label=\"Which experts answered\"]').click()")
    check("the dashboard's address", page.run("opened.endsWith('/dashboard#experts')"))
    fed = page.run("current.messages.at(-1).tokens.length - 1")
    check("no violation of the policy", page.run("violations.length === 0") and page.run("ran.length === 0"))
    browser.open(url + "/dashboard#experts")
    check("the experts of the answer are drawn", browser.wait_for("document.querySelector('#request-map svg')"))
    check("for as many tokens as the model was fed",
          browser.run(f"document.getElementById('request-answer').innerText.includes('{fed} tokens')"))
    # Kept in the browser.
    page = Page(browser, url + "/")
    page.wait("the conversation is kept", "/What is 3/.test(byId('conversations').innerText)")
    page.run("document.querySelector('.conversation .open').click()")
    page.wait("and whole", "current && current.messages.length === 5 && document.querySelectorAll('.message').length === 4")


def talk(page, server):
    """Streams, stops, branches, files, exports."""
    browser = page.browser
    server.refused = ["return_progress"]
    server.answers["long prompt"] = [
        {"raw": {"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}],
                 "prompt_progress": {"total": 4000, "cache": 1000, "processed": 2000, "time_ms": 5}}}, 1.0,
        {"content": "ok"}]
    page.send("long prompt", waits=False)
    page.wait("the share of the prompt", "/2,000 of 4,000 tokens, 1,000 of them cached/.test(document.querySelector('.message:last-child').innerText)")
    page.wait("then the answer", "running === null && /ok/.test(document.querySelector('.message:last-child .md').innerText)")
    check("a field that a server does not know is left out", "return_progress" not in server.bodies[0] and page.run("server.refused.has('return_progress')"))

    server.answers["sum"] = [{"reasoning_content": THOUGHT[i:i + 9]} for i in range(0, len(THOUGHT), 9)] + \
        [0.3] + [{"content": SAMPLE[i:i + 11]} for i in range(0, len(SAMPLE), 11)]
    browser.press("k", modifiers=2)
    check("Ctrl K begins a new chat", page.run("current === null"))
    page.write("sum")
    browser.press("Enter", 13, modifiers=8, text="\r")
    check("Shift+Enter is a new line", page.run("byId('text').value === 'sum\\n' && running === null"))
    page.run("byId('text').value = ''")
    page.send("sum")
    check("thinking is folded", page.run("(() => { const t = document.querySelector('.thinking'); return !t.open && !t.hidden && t.querySelector('.thought').textContent; })()") == THOUGHT)
    check("Markdown", page.run("[...document.querySelectorAll('.md > *')].map((each) => each.tagName + each.className).join()")
          == "P,OL,DIVcode,DIVwide-table,BLOCKQUOTE,P")
    check("code with its tabs", "\n\t\ttotal[rank]" in page.run("document.querySelector('.md pre').textContent"))
    check("numbers at the right of their cells", page.run("getComputedStyle(document.querySelector('.md td')).textAlign === 'right'"))
    check("code with colours", page.run("document.querySelector('.md .hl-word').textContent === 'def'"))
    check("a stream gives what the whole text gives", page.run("(() => { const d = document.createElement('div'); new MarkdownView(d).finish(current.messages[1].content); return d.innerText === document.querySelector('.md').cloneNode(true).innerText || d.textContent === document.querySelector('.md').textContent; })()"))
    check("cached share", "75 % of" in page.last())
    page.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.run("document.querySelector('.code-head button').click()")
    page.wait("code is copied", "window.copied && copied.startsWith('def loads') && copied.includes('\\n\\t\\t')")

    server.answers["count"] = [part for i in range(200) for part in ({"content": f"{i} "}, 0.05)]
    page.send("count", waits=False)
    page.wait("it streams", "/5 6/.test(document.querySelector('.message:last-child').innerText)")
    page.write("while it answers")
    browser.press("Enter", 13, text="\r")
    check("a message waits for the answer before", page.run("byId('text').value === 'while it answers' && /under way/.test(byId('notices').innerText)"))
    page.run("byId('text').value = ''")
    browser.press("Escape", 27)
    page.wait("Esc stops", "running === null && /stopped/.test(document.querySelector('.message:last-child .stats').innerText)")
    page.wait("what had come stays", "/^0 1 2 3/.test(document.querySelector('.message:last-child .md').innerText)")

    # Another wording: a branch beside the first one, with its own answers.
    server.say("other words", "The other branch.")
    page.press("Edit", "nth-last-child(2)")
    page.run("document.querySelector('.edit').value = 'other words'; document.querySelector('.edit-form').requestSubmit()")
    page.wait("the other branch", "running === null && /2 of 2/.test(document.querySelector('.message:nth-last-child(2)').innerText) && /The other branch/.test(document.querySelector('.message:last-child').innerText)")
    check("it knows the messages before", [each["role"] for each in server.bodies[-1]["messages"]] == ["user", "assistant", "user"])
    check("but no thoughts", server.bodies[-1]["messages"][1]["content"] == SAMPLE)
    page.press("The one before", "nth-last-child(2)")
    check("back to the first one", page.run("/^0 1 2/.test(document.querySelector('.message:last-child .md').innerText)"))

    # Errors are told, and what had come stays.
    page.send("nobody knows this")
    check("the server's words", "the queue is full (status 503)" in page.last())
    server.answers["cut"] = [{"content": "half an ans"}, {"raw": "cut"}]
    page.send("cut")
    check(f"a stream that is cut: {page.last()}", "half an ans" in page.last() and "No whole answer" in page.last())

    # Files.
    page.run("""(() => { const data = new DataTransfer();
      data.items.add(new File(['a,b\\n1,2\\n```\\n'], 'rows.csv')); data.items.add(new File([new Uint8Array([0, 255, 254])], 'x.bin'));
      dispatchEvent(new DragEvent('dragover', {dataTransfer: data, cancelable: true}));
      window.wasShown = !byId('drop').hidden;
      dispatchEvent(new DragEvent('drop', {dataTransfer: data, cancelable: true})); })()""")
    page.wait("a text file is taken, another one refused by name",
              "wasShown && /rows.csv/.test(byId('files').innerText) && /x.bin: not a text/.test(byId('notices').innerText)")
    server.answers["File rows.csv:\n````\na,b\n1,2\n```\n````\n\nwith a file"] = [{"content": "Two columns."}]
    page.send("with a file")
    check("the model gets the file", "Two columns." in page.last())

    # Export and import.
    page.run("(() => { download = (name, text) => { window.saved = {name, text}; }; byId('export').click(); })()")
    saved = json.loads(page.run("saved.text"))
    check("the export", saved["format"] == "wideep-chat" and len(saved["conversations"][0]["messages"]) >= 9)
    before = page.run("titles.length")
    page.run("importText('mine.json', saved.text)")
    page.wait("a second copy", f"titles.length === {before + 1} && /1 conversation imported/.test(byId('notices').innerText)")
    again = json.loads(page.run("fileOf([current])"))["conversations"][0]
    check("with the same messages, branches and titles", {**again, "id": ""} == {**saved["conversations"][0], "id": ""})
    saved["conversations"][0]["messages"][1]["role"] = "system"
    page.run(f"importText('bad.json', {json.dumps(json.dumps(saved))})")
    page.wait("what is wrong with a file", "/bad.json: conversations\\[0\\].messages\\[1\\].role: expected \"user\" or \"assistant\", found \"system\"/.test(byId('notices').innerText)")
    page.run("byId('notices').replaceChildren(); document.querySelector('.is-open .bin').click()")
    page.wait("deleted, with a way back", f"titles.length === {before} && document.querySelector('#notices .small-button')")
    page.run("document.querySelector('#notices .small-button').click()")
    page.wait("which works", f"titles.length === {before + 1}")
    page.run("document.querySelector('.conversation .open').click()")
    page.wait("it opens again", "document.querySelector('.message')")

    # A browser whose storage is full says so.
    page.run("store.write = () => Promise.reject(new DOMException('full', 'QuotaExceededError')); keep(newConversation(''))")
    page.wait("a quota that is full", "/storage for the page is full/.test(byId('notices').innerText)")
    # What experts answered needs an option.
    page.run("byId('notices').replaceChildren(); document.querySelector('[aria-label=\"Which experts answered\"]').click()")
    check("the option is named", page.run("/--enable-return-routed-experts/.test(byId('notices').innerText)"))
    browser.press(",", 188, modifiers=2)
    check("Ctrl , opens the settings", page.run("byId('settings-dialog').open"))
    page.run("byId('extra').value = '{\"messages\": []}'; byId('extra').dispatchEvent(new Event('change'))")
    check("a field of the page's own is refused", page.run("/messages: the page sets it/.test(byId('extra-error').innerText)"))
    page.run("byId('settings-dialog').close()")
    check("nothing was blocked", page.run("violations.length === 0 && ran.length === 0"))


# Cut within a block of code with blank lines and signs of Markdown.
CUT = "Here:\n\n```python\n# load\n\nx = a *b* c\n\n# sum\ny = `z"
# Texts for which Markdown's rules take very long, or call themselves too deeply.
LONG = ["*a " * 7000, "*a **b " * 3000, "_" * 20000 + "a", "> " * 5000 + "x", "- " * 5000 + "x", "1. " * 5000 + "x", "[a](" * 5000,
        "a." * 10000 + "@", "```js\n" + "`\\" * 40000 + "\n```", "```js\n" + "'\\" * 40000 + "\n```"]


def odd(browser, server):
    """What models, keys and browsers may bring."""
    page = Page(browser, server.url + "/#key=50%off")
    page.wait("a key with a percent sign", "keyInUse() === '50%off' && location.hash === ''")
    page.run("askForKey().catch(() => {}); byId('key').value = 'schl\u00fcssel'; byId('key-form').requestSubmit()")
    check("a key that no header can have", page.run("byId('key-dialog').open && /found \u201c\u00fc\u201d/.test(byId('key-error').innerText)"))
    page.run("endKeyDialog(false)")

    # An open block of code is code at each step, and at the end.
    wrong = page.run(f"""(() => {{ const text = {json.dumps(CUT)}; const d = document.createElement('div'); const view = new MarkdownView(d); const wrong = [];
      for (let i = text.indexOf('\\n# load'); i <= text.length; ++i) {{
        view.update(text.slice(0, i));
        const shown = [...d.children].map((each) => each.tagName + each.className).join();
        if (shown !== 'P,DIVcode') wrong.push(i + ': ' + shown);
      }}
      view.finish(text);
      return [...wrong, d.querySelector('pre')?.textContent]; }})()""")
    check(f"an open block of code: {wrong}", wrong == [CUT.split("python\n")[1] + "\n"])
    shown = page.run("""['- a\\n  ```js\\n  x *y* z', '1. a\\n\\n   ~~~\\n   # x', '> ```\\n> # x', '```a``` b', '![a & b](https://x.org/?a=1&b=2)'].map((text) => {
      const d = document.createElement('div'); new MarkdownView(d).finish(text);
      return [...d.querySelectorAll('pre, h1, em, code, a')].map((each) => each.tagName + each.textContent + (each.getAttribute('href') ?? '')).join(); })""")
    check(f"in lists and quotes: {shown}", shown == [
        "PREx *y* z\n,CODEx *y* z\n", "PRE# x\n,CODE# x\n", "PRE# x\n,CODE# x\n", "CODEa", "Aa & bhttps://x.org/?a=1&b=2"])

    times = page.run(f"""{json.dumps(LONG)}.map((text) => {{ const d = document.createElement('div'); const begun = performance.now();
      new MarkdownView(d).finish(text); return [Math.round(performance.now() - begun), d.textContent.replace(/\\s/g, '').length]; }})""")
    check(f"texts that take long: {times}", all(ms < 8000 and shown > 0 for ms, shown in times))

    # What an office program puts into the clipboard is its text.
    taken = page.run("""(() => { const results = [];
      for (const [type, kind, text] of [['a.png', 'image/png', 'cells'], ['a.csv', 'text/csv', 'a.csv'], ['a.png', 'image/png', '']]) {
        const data = new DataTransfer(); data.items.add(new File(['x'], type, {type: kind}));
        if (text) data.items.add(text, 'text/plain');
        results.push(!byId('text').dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true})));
      }
      return results; })()""")
    check(f"pasted files: {taken}", taken == [False, True, True])
    page.run("files = []; showFiles(); byId('notices').replaceChildren()")

    # Storage that is full is told, and what was not kept is not counted.
    page.run("""(() => { const one = (id) => ({id, title: 't', system: '', messages: []}); const write = store.write.bind(store); let left = 1;
      store.write = (each) => left-- > 0 ? write(each) : Promise.reject(new DOMException('full', 'QuotaExceededError'));
      return importText('two.json', JSON.stringify({format: kFileFormat, version: kFileVersion, conversations: [one('m1'), one('m2')]})); })()""")
    check("an import that is not kept", page.run("/1 conversation imported of 2/.test(byId('notices').innerText)"))
    page.run("Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); }; server.returnsExperts = true; openExperts({tokens: [1, 2, 3], content: ''})")
    check("nor the tokens for the dashboard", page.run("/cannot be told/.test(byId('notices').innerText)"))


def inject(page, server, has_policy):
    """Each text as an answer, as it streams, and as HTML to the sanitiser alone."""
    for i, (_, text) in enumerate(INJECTIONS):
        server.answers[f"inject {i}"] = [{"content": text[j:j + 5]} for j in range(0, len(text), 5)]
    # The watch works: without the sanitiser a handler runs where no policy stops it.
    page.run("""(() => { const one = document.createElement('img');
      try { one.setAttribute('onerror', 'alert(1)'); } catch {}  // as Trusted Types want it
      one.src = 'data:,x'; document.body.append(one); return new Promise((resolve) => setTimeout(() => { one.remove(); resolve(); }, 300)); })()""")
    if has_policy:
        check("the policy alone stops a handler", page.run("ran.length === 0 && violations.some((each) => /^(script-src|require-trusted-types)/.test(each))"))
    else:
        check("the watch sees a handler", page.run("ran.length === 1 && violations.length === 0"))
    page.run("ran.length = 0; violations.length = 0; byId('messages').insertAdjacentElement('afterend', make('div', {class: 'proof'}))")
    for i, (family, text) in enumerate(INJECTIONS):
        literal = json.dumps(text)
        faults = page.run(f"""(() => {{ const proof = document.querySelector('.proof');
          proof.replaceChildren(cleanFragment({literal})); const raw = {FAULTS}(document);
          proof.replaceChildren(); new MarkdownView(proof).finish({literal}); return [...raw, ...{FAULTS}(document)]; }})()""")
        check(f"{family}: {faults}", faults == [])
        page.run("for (const each of document.querySelectorAll('.proof a, .proof summary')) { each.target = ''; each.addEventListener('click', (event) => event.preventDefault()); each.click(); }"
                 "for (const each of document.querySelectorAll('.proof *')) for (const name of ['mouseover', 'focus', 'toggle', 'error', 'load']) each.dispatchEvent(new Event(name))")
    # Chromium tells of handlers as the sanitiser parses them, in a document that runs nothing: what
    # counts is what the page does with whole answers.
    page.run("document.querySelector('.proof').remove(); new Promise((resolve) => setTimeout(resolve, 200)).then(() => { violations.length = 0; })")
    for i in range(0, len(INJECTIONS), 1 if not has_policy else 6):
        page.send(f"inject {i}")
    check("nothing has run", page.run("ran") == [])
    check(f"nothing was even tried: {page.run('violations')}", page.run("violations") == [])
    check("nothing forbidden is shown", page.run(f"{FAULTS}(document)") == [])
    check("the page is whole", page.run("running === null && document.querySelectorAll('#composer').length === 1"))
    hosts = {event["params"]["request"]["url"] for event in page.browser.events
             if event["method"] == "Network.requestWillBeSent"}
    other = [each for each in hosts if not each.startswith((server.url, "data:", "about:", "blob:"))]
    check(f"no other host is asked: {other}", not other)


def set_size(browser, width, height, dark):
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])


def look(page, axe, pictures):
    """At five widths nothing is cut off; at two, light and dark, axe-core finds nothing."""
    browser = page.browser
    for width in (360, 390, 768, 1440, 1920):
        set_size(browser, width, 844, False)
        check(f"nothing is cut off at {width} px", page.run(
            "document.documentElement.scrollWidth <= innerWidth && byId('thread').scrollWidth <= byId('thread').clientWidth"
            " && byId('composer').getBoundingClientRect().right <= innerWidth && byId('settings').getBoundingClientRect().right <= innerWidth"))
    # One of the other colours than the system's, and back.
    set_size(browser, 1440, 900, False)
    light = page.run("getComputedStyle(document.body).backgroundColor")
    page.run("byId('theme').click()")
    check("dark on demand", page.run("getComputedStyle(document.body).backgroundColor") != light)
    page.run("byId('theme').click()")
    check("and light again", page.run("getComputedStyle(document.body).backgroundColor") == light)
    for width, height in ((390, 844), (1440, 900)):
        for dark in (False, True):
            set_size(browser, width, height, dark)
            page.run("showSide(innerWidth > 860); document.activeElement.blur(); byId('thread').scrollTop = 0")
            name = f"{width}_{'dark' if dark else 'light'}"
            if pictures:
                browser.picture(pictures / f"chat_{name}.png")
            for state, script in (("thread", ""), ("side", "showSide(true)"), ("settings", "openSettings()"), ("key", "askForKey().catch(() => {})")):
                page.run(f"{script}; void 0")
                if pictures and state != "thread" and dark:
                    browser.picture(pictures / f"chat_{name}_{state}.png")
                if axe:
                    page.run(axe)
                    found = page.run("axe.run(document).then((result) => result.violations.map((each) => each.id + ': ' + each.nodes.map((node) => node.html.slice(0, 120) + ' ' + node.any.map((any) => any.message)).join(' | ')))")
                    check(f"axe-core, {name}, {state}: {found}", found == [])
                page.run("byId('settings-dialog').close(); if (byId('key-dialog').open) endKeyDialog(false); showSide(innerWidth > 860)")


def page_with_chats(browser, server):
    """A fresh one (storage is kept for each port), with some conversations."""
    fresh = ScriptedServer(server.page, server.headers)
    page = Page(browser, fresh.url + "/")
    for text in ("Why do experts move?", "A haiku about all-to-all", "Read this log: which rank is slow?"):
        fresh.say(text, "Because the texts change.")
        page.send(text)
        browser.press("k", modifiers=2)
    fresh.answers["Sum the load of each rank, in Python."] = [
        *({"reasoning_content": THOUGHT[i:i + 9]} for i in range(0, len(THOUGHT), 9)),
        *(part for i in range(0, len(SAMPLE), 11) for part in ({"content": SAMPLE[i:i + 11]}, 0.02))]
    page.send("Sum the load of each rank, in Python.")
    fresh.say("And in C++?", "Much the same:\n\n```cpp\nfor (const auto& [rank, load] : rows) total[rank] += load;  // as above\n```\n")
    page.send("And in C++?")
    page.press("Regenerate")
    page.wait("two answers", "running === null && /2 of 2/.test(document.querySelector('.message:last-child').innerText)")
    return page


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("key")
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--axe", type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path)
    options = parser.parse_args()
    axe = options.axe.read_text() + "; void 0" if options.axe else None
    server = ScriptedServer(*read_page(options.url))
    with Browser(options.work / "profile", 1440, 900) as browser:
        for domain in ("Page", "Network", "Runtime"):
            browser.call(f"{domain}.enable")
        browser.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        against_real_server(browser, options.url, options.key)
        odd(browser, server)
        talk(Page(browser, server.url + "/"), server)
        inject(Page(browser, server.url + "/"), server, has_policy=True)
        browser.call("Page.setBypassCSP", enabled=True)
        inject(Page(browser, server.url + "/"), server, has_policy=False)
        browser.call("Page.setBypassCSP", enabled=False)
        look(page_with_chats(browser, server), axe, options.pictures)
    print(f"the chat page talks, keeps and shows; {len(INJECTIONS)} injections ran nothing, with the policy and without it"
          + ("; axe-core found nothing" if axe else ""))


main()
