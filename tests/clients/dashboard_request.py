# SPDX-License-Identifier: Apache-2.0
"""Uses the dashboard as a person does: chooses another layer and time, and sends one request alone.

    dashboard_request.py <URL with the key> <directory of the profile> [picture.png]
"""

import sys

from browser import Browser


def check(what, truth):
    if not truth:
        sys.exit(f"not so: {what}")


def choose(browser, identifier, index):
    browser.run(f"(() => {{ const s = document.getElementById('{identifier}'); s.selectedIndex = {index};"
                "s.dispatchEvent(new Event('change')); })()")


with Browser(sys.argv[2]) as browser:
    browser.open(sys.argv[1])
    check("the load is drawn", browser.wait_for("document.querySelector('#experts-map svg')"))
    check("experts of the first layer", browser.run("load.layer === load.facts.layers[0]"))
    choose(browser, "experts-layer", 1)
    check("experts of another layer", browser.wait_for(
        "load.windows.size > 0 && load.facts.layer === load.facts.layers[1] && document.querySelector('#experts-map svg')"))
    # Until then all of them together are the last one alone.
    check("a second window of time", browser.wait_for(
        "windowsWithSent().filter((each) => sum(each.sent.flat()) > 0).length > 1", 30))
    before = browser.run("document.getElementById('sent-map').innerHTML")
    choose(browser, "sent-window", 1)  # all of them together
    check("another time is another picture",
          browser.run("document.getElementById('sent-map').innerHTML") != before)
    browser.run("(() => { const map = document.getElementById('sent-map'); map.focus();"
                "map.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'})); })()")
    check("keys show the value of a cell", browser.run(
        "document.activeElement.id === 'sent-map' && !document.getElementById('tooltip').hidden"
        " && /pairs/.test(document.getElementById('tooltip').innerText)"))
    browser.run("document.getElementById('request-text').value = 'What is 3 + 4?';"
                "document.querySelector('#request-form button').click()")
    check("the experts of a request are drawn",
          browser.wait_for("document.querySelector('#request-map svg')"))
    # Each token uses top_k experts of each layer.
    check("for each layer", browser.run(
        "document.querySelectorAll('#request-map svg text.strong').length === load.facts.layers.length"))
    check("a wrong number is nowhere", not browser.run("/NaN|undefined/.test(document.getElementById('board').innerText)"))
    if len(sys.argv) > 3:
        check("experts have moved", browser.wait_for("document.querySelector('#move-map svg')", 60))
        browser.picture(sys.argv[3], "#load-board")
print("the dashboard shows the load, and one request alone.")
