#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what Python's jinja2 makes of templates, set up as transformers sets it up.

    make_golden.py                     rewrites constructs.json beside this file
    make_golden.py --templates DIR F   renders conversations with each *.jinja of DIR into F, for
                                       chat_test with WIDEEP_CHAT_GOLDEN=F

Needs jinja2.
"""

import argparse
import datetime
import functools
import itertools
import json
import pathlib

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent
NOW = 1735689600  # 2025-01-01 00:00:00 UTC


def make_environment():
    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

        def _same(self, caller):
            return caller()

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.fromtimestamp(
        NOW, datetime.timezone.utc).strftime(form)
    return environment


@functools.lru_cache(maxsize=1)
def compiled(template):
    return make_environment().from_string(template)


def render(template, names):
    """The text, or None where it fails. map() makes lists with us, which are JSON, and no generators,
    which are not."""
    try:
        return compiled(template).render(**names)
    except Exception as error:  # pylint: disable=broad-except
        if "generator is not JSON" in str(error):
            raise
        return None


NAMES = {
    "messages": [
        {"role": "system", "content": "Be  brief.\n"},
        {"role": "user", "content": "Grüße, 世界 👋"},
        {"role": "assistant", "content": "Hi.", "tool_calls": [
            {"function": {"name": "f", "arguments": {"b": [1, 2.5, None, True], "a": "x\"y'z\\"}}}]},
        {"role": "user", "content": [{"type": "text", "text": "part"}, {"type": "image"}]},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": {}}}}],
    "empty": [], "none": None, "yes": True, "n": 7, "x": 2.5, "big": 1e20, "small": 0.00001,
    "word": "  Hello, World-wide (web)  ", "names": ["b", "A", "c", "a"], "bos_token": "<s>",
    "items": {"k": 1, "items": 2}, "lines": "one\n\ntwo\nthree\n", "eos_token": "</s>",
}

CONSTRUCTS = [
    # White space
    "a\n{% if yes %}\nb\n{% endif %}\nc\n", "a\n  {% if yes %}  \n b\n  {%- endif -%}  \n c\n\n",
    "{%- for m in messages %}\n{{- m.role }}\n{% endfor %}x", "a {# comment #}\nb\n  {#- c -#}\n d",
    "  {%+ if yes %}x{% endif +%}\ny", "{{ 1 -}}  \n 2 {{- 3 }}\n\n", "{% raw %}{{ x }}{% endraw %}\n!",
    "{%- raw -%}  {% x %}  {%- endraw %}z", "x\r\ny{% if yes %}\r\nz{% endif %}", "\n\n", "",
    "a{% raw %}\nb{% endraw %}\nc", "a\n  {% raw %}\n  b\n  {% endraw %}\nc", "a{% raw %}  {% endraw %}|",
    "a {% raw -%}\n  x\n {%+ endraw %} y", "a{%raw-%}\n   {%endraw-%}\n b", "  {%- raw -%}\n   {% endraw %}\n b",
    "  {{ n }}  \n   {% set a = 1 %}\n{{ a }}", "{% if yes -%}\n  \n  {% set b = 2 %}\n {{ b }}{% endif %}",
    # Values and their text
    "{{ none }} {{ yes }} {{ n }} {{ x }} {{ big }} {{ small }} {{ 1e16 }} {{ 123456789.0 }} {{ -0.5 }}",
    "{{ [1, 'a', none, [true]] }} {{ {'a': 1, 'b': {'c': \"it's\"}} }} {{ ('t', 1)[0] }}",
    "{{ 'tab\\there' }} {{ 'q\\'q' }} {{ \"d\\\"d\" }} {{ 'u\\u00e9\\x41\\n' }} {{ 'a' 'b' }} {{ 'c:\\d' }}",
    "{{ missing }}|{{ missing is defined }}|{{ messages[9] is defined }}|{{ n.foo is undefined }}",
    "{{ missing.attribute }}", "{{ missing[0] }}", "{{ missing() }}", "{{ n() }}", "{{ missing + 1 }}",
    "{{ none.x is defined }} {{ 'abc'[1] }} {{ 'abc'[-1] }} {{ [1,2,3][-2] }} {{ 'äöü'[1:] }}",
    # Operators
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }}",
    "{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ 'a' ~ 1 ~ none }} {{ 'a' + 'b' }} {{ [1] + [2] }}",
    "{{ 'ab' * 2 }} {{ 1.5 + 1 }} {{ 7.5 // 2 }} {{ 7.5 % 2 }} {{ true + 1 }} {{ -x }} {{ +n }}",
    "{{ 1 + 'a' }}", "{{ 1 / 0 }}", "{{ n < none }}", "{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 == 1.0 }}",
    "{{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 'a' == \"a\" }} {{ none == missing }} {{ 1 != '1' }}",
    "{{ 'ell' in 'hello' }} {{ 3 in [1, 2] }} {{ 'k' in items }} {{ 'q' not in items }} {{ 1 in missing }}",
    "{{ yes and 'a' or 'b' }} {{ none or 'c' }} {{ not yes }} {{ not none and yes }} {{ '' and 1 }}",
    "{{ 'a' if yes else 'b' }} {{ 'a' if none }} {{ 1 if none else 2 if none else 3 }}",
    "{{ [1,2,3,4][1:3] }} {{ [1,2,3,4][::-1] }} {{ [1,2,3,4][-2:] }} {{ 'hello'[::2] }} {{ [1,2][5:] }}",
    "{{ 'héllo'[1:3] }} {{ 'héllo'[::-1] }} {{ 'héllo'[-1:] }} {{ 'héllo'[:-1] }} {{ 'héllo'[3:1] }} {{ 'héllo'[4:0:-2] }} {{ 'héllo'[::9] }} {{ 'héllo'[::-9] }} {{ ''[::-1] }}",
    "{{ [1,2,3,4][3:0:-1] }} {{ [1,2,3][:-1] }} {{ 'abc'[:100] }} {{ [1,2,3,4,5][-100:100:3] }}",
    "{{ 'a' ~ 'b' | upper }} {{ n is odd and yes }} {{ not n is even }} {{ 3 * 2 is even }}",
    # Text marked as safe
    "{{ '<a>' | safe }}{{ 'x' ~ ('<' | safe) ~ '&' }}{{ ('<' ~ '&' | safe) + '&' }}|{{ 7 | safe }}{{ none | safe }}",
    "{{ ('<' | safe) + '&\\'\"' }} {{ '&' + ('<' | safe) + '>' }} {{ ('<' | safe) + ('&' | safe) }}",
    "{% set s = '<b>' | safe %}{{ s }}{{ (s | string) + '>' }}{{ (s | trim | upper) + '>' }}{{ s[0] + '<' }}{{ s[1:] + '<' }}",
    "{{ ('<' | safe) == '<' }} {{ ('<' | safe) is string }} {{ ('<<' | safe) | length }} {{ ['<' | safe] }}",
    "{{ items | tojson | safe }}{{ (['<'] | tojson | safe) + '<' }}{{ ('<' | safe) * 2 + '>' }}{{ '<' | safe | tojson }}",
    "{% macro m() %}{{ '<' | safe }}{% endmacro %}{{ m() + '<' }}{% for c in '<>' | safe %}{{ c + '&' }}{% endfor %}",
    "{{ (missing | default('<' | safe)) + '<' }}{{ ('a<' | safe | replace('a', 'b')) + '<' }}{{ (['<' | safe] | join('&')) + '<' }}",
    # Statements
    "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }} {% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index0 }}{{ loop.revindex }}{{ m.content }}{% endfor %}",
    "{% for i in empty %}x{% else %}none{% endfor %} {% for k, v in items.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in items %}{{ k }}{% endfor %} {% for c in 'añb' %}{{ c }},{% endfor %}", "{% for i in none %}{% endfor %}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in range(5) %}{% set t %}a{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endset %}[{{ t }}]{% endfor %}|{{ t }}",
    "{% for i in range(5) %}{% set t %}a{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endset %}[{{ t }}]{% endfor %}",
    "{% for i in range(5) %}{% filter upper %}a{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfilter %}{% endfor %}",
    "{% for i in range(5) %}{% filter upper %}a{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfilter %}{% endfor %}",
    "{% for i in [1, 2] %}{{ loop.depth }}{{ loop.depth0 }}{% for j in [1] %}{{ loop.depth }}{% endfor %}{{ loop }}{{ loop['index'] }}{{ loop.x is defined }}{% endfor %}",
    "{% for i in range(3) %}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }} {% endfor %}",
    "{% set a = 1 %}{% for i in [1] %}{% set a = 2 %}{{ a }}{% endfor %}{{ a }}",
    "{% set ns = namespace(a=1, b='x') %}{% for i in [1] %}{% set ns.a = 2 %}{% endfor %}{{ ns.a }}{{ ns.b }}",
    "{% set ns = namespace() %}{% set ns.z = 3 %}{{ ns.z }}{{ ns.q is defined }}", "{% set n.z = 3 %}",
    "{% set ns = namespace(items=1, keys=2, get=3) %}{% set ns.values = 4 %}{{ ns.items }}{{ ns.keys }}{{ ns.get }}{{ ns.values }}{{ ns['items'] }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns }}{{ ns.a }}{{ dict({'a': 1}, b=2) }}{{ dict([['a', 1]]) }}{{ namespace([('a', 1)]).a }}",
    "{% set ns = namespace(a=1) %}{{ ns == ns }}{{ ns == namespace(a=1) }}{{ ns is mapping }}{{ ns is iterable }}{{ ns is sequence }}{{ 'y' if namespace() }}{{ ns ~ '' }}",
    "{{ namespace() | length }}", "{{ 'a' in namespace(a=1) }}", "{% for x in namespace(a=1) %}{% endfor %}", "{{ namespace(a=1) | tojson }}",
    "{{ dict(5) }}", "{{ dict(namespace(a=1)) }}", "{{ dict({}, {}) }}", "{{ namespace().q.r }}", "{% set d = {'a': 1} %}{% set d.b = 2 %}{{ d }}",
    "{% for i in [1] %}{% set loop.x = 1 %}{% endfor %}", "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}{{ ns.me.me == ns }}{{ [ns] }}",
    "{% set ns = namespace() %}{% set ns.all = [ns] %}{{ ns.all }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set t %} block {{ n }} {% endset %}[{{ t }}]",
    "{% if none %}1{% elif n == 7 %}2{% else %}3{% endif %}{% if missing %}4{% else %}5{% endif %}",
    "{% macro m(a, b='d', c=none) %}({{ a }},{{ b }},{{ c }}){% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m(b=2, a=9) }}",
    "{% macro fact(i) %}{% if i <= 1 %}1{% else %}{{ i }}*{{ fact(i - 1) }}{% endif %}{% endmacro %}{{ fact(4) }}",
    "{% set out = 'g' %}{% macro m() %}{{ out }}{% set out = 'l' %}{{ out }}{% endmacro %}{{ m() }}{{ out }}",
    "{% macro m(a, b='d') %}{{ a }}{{ b }}{% endmacro %}{{ m(missing, missing) }}|{{ m(1) }}|{{ m(b=missing) }}|{{ m(1, none) }}",
    "{% for i in [1, 2] %}{% macro m(a) %}{{ i }}{{ a }}{{ loop.index }}{% endmacro %}{{ m(i) }}{% endfor %}{{ m is defined }}",
    "{% macro o(x) %}{% set y = 5 %}{% macro i() %}{{ x }}{{ y }}{% endmacro %}{{ i() }}{% set y = 6 %}{{ i() }}{% endmacro %}{{ o(3) }}",
    "{% macro m() %}{{ z }}{% endmacro %}{% set z = 1 %}{{ m() }}{% set z = 2 %}{{ m() }}{% for z in [3] %}{{ m() }}{% endfor %}",
    "{% macro a(z) %}{{ b() }}{% endmacro %}{% macro b() %}{{ z }}|{% endmacro %}{{ a(4) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m() }}|{{ m(1, 2) }}", "{% macro m() -%}\n x \n{%- endmacro %}[{{ m() }}]",
    "{% filter upper %}abc{{ n }}{% endfilter %} {% generation %}said{% endgeneration %}",
    "{{ raise_exception('no ' ~ n) }}", "{{ strftime_now('%Y-%m-%d %B') }}", "{{ range(3) | list }} {{ range(5, 1, -2) | list }}",
    "{{ dict(a=1, b='c') }} {{ dict(a=1).a }}", "{% for a in [[1, 2], [3, 4]] %}{% for b in a %}{{ b }}{{ loop.last }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for (a, b) in [[1, 2]] %}{{ a + b }}{% endfor %} {% set x = 1 if n > 3 else 2 %}{{ x }}",
    "{% for i, (k, v) in [(1, ('a', 2)), (3, ['b', 4])] %}{{ i }}{{ k }}{{ v }};{% endfor %}{% for (a, b), c in [[[1, 2], 3]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% set (a, (b, c)) = 1, (2, 3) %}{{ a }}{{ b }}{{ c }}", "{% for a, (b, c) in [(1, 2)] %}{% endfor %}",
    "{% set t | upper | trim %} a{{ n }} {% endset %}[{{ t }}]",
    # What is not called, and what loads
    "{% for x in [1] %}{{ loop(x) }}{% endfor %}",
    "{% include 'a' %}", "{% extends 'a' %}", "{% import 'a' as b %}", "{% from 'a' import b %}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{% set ns.a = ns.a + 1 %}{{ ns.a }}{{ namespace([('c', 3)]).c }}{{ dict([(1, 2), 'ab'], c=3) }}{{ dict({1: 2}) }}", "{{ dict([1]) }}", "{{ dict([[[], 1]]) }}",
    # Keys and ranges
    "{{ {1: 'a', 2.5: 'b', none: 'c', true: 'd', (1, 'x'): 'e', 'k': {0: 1}} }}{{ {1: 'a'}[1.0] }}{{ {1: 'a'}[true] }}{{ {(1, 2): 3}[(1, 2)] }}{{ {1: 2}.get(1) }}{{ {1: 2}['1'] }}{{ 1 in {1: 2} }}{{ none in {1: 2} }}{{ {1: 2} == {1.0: 2} }}{{ {'1': 2} == {1: 2} }}",
    "{{ {1: 'a', 2.5: 'b', none: 'c', false: 'd', 1e20: 'e', 'k': {0: 1}} | tojson }}{{ {3: 1, 1: 2, 2.5: 3} | tojson(sort_keys=true, indent=1) }}", "{{ {(1, 2): 3} | tojson }}", "{{ {1: 2, 'a': 3} | tojson(sort_keys=true) }}", "{{ {[]: 1} }}", "{{ {1: 2}[[]] }}", "{{ [] in {} }}",
    "{% for k, v in {1: 'a', none: 'b'} | items %}{{ k }}{{ v }}{% endfor %}{{ {2: 'a', 1: 'b'} | dictsort }}{{ {1: 2}.items() }}{{ {1: 2} | list }}",
    "{{ range(3) }}{{ range(1, 5) }}{{ range(5, 1, -2) }}{{ range(0) }}{{ 2 in range(3) }}{{ 2.0 in range(3) }}{{ 'a' in range(3) }}{{ range(3)[1] }}{{ range(3)[-1] }}{{ range(3) | length }}{{ range(10)[2:8:2] }}{{ range(10)[::-1] }}{{ range(3)[5:] }}",
    "{{ range(3) == [0, 1, 2] }}{{ range(3) == range(0, 3) }}{{ range(0) == range(2, 1) }}{{ range(3) is sequence }}{{ {range(2): 1}[range(2)] }}{{ range(5).index(3) }}{{ range(5).count(3) }}{{ range(1, 9, 3).start }}{{ range(1, 9, 3).stop }}{{ range(1, 9, 3).step }}",
    "{{ range(3) + [1] }}", "{{ range(3) * 2 }}", "{{ range(3) | tojson }}", "{{ range(3) < range(4) }}", "{{ range() }}", "{{ range(1.5) }}", "{{ range(100001) }}", "{{ range(1, 2, 0) }}", "{{ range(none) }}",
    "{{ [].append(1) }}", "{{ {}.update({}) }}", "{{ {'pop': 1}.pop }}|{{ {'pop': 1}['pop'] }}|{{ [].sort is defined }}|{{ {}.clear is defined }}", "{{ {'pop': 1}.pop() }}", "{{ (1, 2).append }}|",
    # Text marked as safe: its methods
    "{{ ('<b>' | safe) + '<i>' }}{{ '<i>' + ('<b>' | safe) }}{{ ('<b>' | safe).upper() + '<' }}{{ ('<,b' | safe).split(',') | first + '<' }}",
    # Types of Python
    "{{ items.items() }}{{ items.keys() }}{{ items.values() }}{{ items | dictsort }}{{ (items | items | list)[0] }}{{ 1, 'a' }}{{ () }}{{ (1,) }}",
    "{{ (1, 2) == [1, 2] }}{{ (1, 2) == (1, 2) }}{{ (1,) + (2,) }}{{ (1, 2)[::-1] }}{{ (1,) * 2 }}{{ (1, 2) | tojson }}{{ (1, [2]) is sequence }}{{ items.keys() is sequence }}",
    "{{ (1,) + [2] }}", "{{ items.items() | tojson }}", "{{ items.items()[0] }}", "{{ 'a'.startswith(['a']) }}", "{{ (1, 2) < [1, 3] }}",
    "{{ 18446744073709551615 }} {{ [123456789012345678901234567890] | tojson }} {{ 18446744073709551615 > 9223372036854775807 }} {{ 18446744073709551615 is integer }} {{ '123456789012345678901' | int }}",
    "{{ 'a\u00ad\u200b\ue000\x07\u3000é😀'.split('q') }} {{ 'a\x0bb\x1cc\x85d\u2028e'.splitlines() }} {{ 'ǆ ß ﬁ'.title() }}",
    # Arguments of every type
    "{{ {'a': [1, {'b': 2}]} | tojson(indent='\t') }}|{{ {'a': 1} | tojson(indent=true) }}|{{ {'a': 1} | tojson(indent='  ') }}|{{ [1] | tojson(indent=-1) }}",
    "{{ [1] | tojson(indent=1.5) }}", "{{ [1] | tojson(indent=[]) }}", "{{ {'ä': '😀'} | tojson(ensure_ascii=true) }}", "{{ [1, 2] | tojson(indent=1, separators=(', ', '=')) }}",
    "{{ [1] | tojson(separators='a') }}", "{{ [1] | tojson(separators=[1, 2]) }}", "{{ 'a' | trim(1) }}", "{{ 'a' | indent(1.5) }}", "{{ 7 | indent }}",
    "{{ 'a1b1' | replace(1, 2) }}{{ '1_000' | int }}{{ ' 12 ' | int }}{{ 'x' | int(none) }}", "{{ [1] | sort(reverse='a') }}",
    "{{ 'a b'.split(none, none) }}", "{{ 'aa'.replace('a', 'b', none) }}", "{{ 'a' * 1.5 }}", "{{ missing | int }}",
    # Formats
    "{{ '{} {} {a} {{}}'.format(1, [2], a='x') }} {{ '{1}{0}{1}'.format('a', 'b') }}", "{{ '{} {1}'.format(1, 2) }}",
    "{{ '{}'.format() }}",
    "{{ 'prefix-x'.removeprefix('prefix-') }}{{ 'x.py'.removesuffix('.py') }}{{ '²'.isdigit() }}",
    "{{ 'a.b.c'.rsplit('.', 1) }}{{ 'abcb'.rfind('b') }}{{ 'abc'.find('c', 1) }}{{ 'abc'.startswith('b', 1) }}",
    # Tests
    "{{ n is integer }}{{ x is float }}{{ n is number }}{{ yes is boolean }}{{ word is string }}{{ none is none }}",
    "{{ items is mapping }}{{ names is sequence }}{{ word is iterable }}{{ n is iterable }}{{ yes is true }}{{ n is true }}",
    "{{ n is divisibleby 7 }}{{ n is divisibleby(2) }}{{ n is eq 7 }}{{ n is ge 8 }}{{ 'a' is in names }}",
    "{{ n is not none }}{{ n is sameas 7 }}{{ yes is number }}{{ yes is integer }}",
    # Filters
    "[{{ word | trim }}] [{{ word | upper }}] [{{ word | lower }}] [{{ word | title }}] [{{ 'hELLO w' | capitalize }}]",
    "{{ names | join(', ') }} {{ messages | map(attribute='role') | join('+') }} {{ names | join }} {{ messages | join('|', attribute='role') }}",
    "{{ names | length }} {{ 'äö' | length }} {{ items | count }} {{ missing | length }} {{ names | first }} {{ names | last }} {{ empty | first }}",
    "{{ missing | default('d') }} {{ '' | default('e') }} {{ '' | default('f', true) }} {{ none | d('g') }} {{ none | default('h', boolean=true) }}",
    "{{ tools | tojson }} {{ tools | tojson(indent=2) }} {{ messages[2] | tojson }} {{ 'é<&>' | tojson }} {{ empty | tojson(indent=4) }}",
    "{{ items | tojson(separators=(',', ':')) }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ [x, big, yes, none] | tojson }}",
    "{{ 'a-b-c' | replace('-', '+') }} {{ 'aaa' | replace('a', 'b', 2) }} {% for k, v in items | items %}{{ k }}{{ v }}{% endfor %} {{ items | dictsort | map('last') | list }}",
    "{{ names | sort }} {{ names | sort(reverse=true) }} {{ names | sort(case_sensitive=true) }} {{ ['a', 'A', 'b'] | unique | list }}",
    "{{ [3, 1, 2] | max }} {{ [3, 1, 2] | min }} {{ names | reverse | list }} {{ 'abc' | reverse }} {{ 'abc' | list }}",
    "{{ '42' | int }} {{ 'x' | int }} {{ '3.9' | int }} {{ 3.9 | int }} {{ 'x' | int(5) }} {{ 7 | string ~ '!' }}",
    "{{ 'añb' | first }}{{ 'añb' | last }}{{ items | first }}{{ items | last }}{{ missing | first }}{{ missing | last }}", "{{ 5 | first }}", "{{ 5 | length }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | rejectattr('role', 'eq', 'user') | map(attribute='role') | list }}",
    "{{ messages | selectattr('tool_calls', 'defined') | map(attribute='role') | join }} {{ [0, 1, none, 'a'] | select | list }} {{ [1, 2, 3] | select('odd') | list }}",
    "{{ [1, 2, 3] | reject('divisibleby', 2) | list }} {{ names | map('upper') | list }} {{ ['a-b'] | map('replace', '-', '_') | first }}",
    "{{ lines | indent }}|{{ lines | indent(2, true) }}|{{ lines | indent(2, blank=true) }}",
    "{{ word | trim(' Hb)') }} {{ messages[3].content | selectattr('type', 'eq', 'text') | map(attribute='text') | first }}",
    # Methods
    "{{ word.strip() }}|{{ word.lstrip() }}|{{ word.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ '\\n\\na\\n'.lstrip('\\n') }}",
    "{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b c'.split(none, 1) }} {{ ' a  b c '.split(none, 1) }}{{ ' a '.split(none, 0) }}{{ '  '.split() }} {{ 'a</think>b'.split('</think>')[-1] }}",
    "{{ 'hello'.startswith('he') }} {{ 'hello'.endswith(('x', 'lo')) }} {{ 'Ab'.upper() }}{{ 'Ab'.lower() }} {{ 'it is'.title() }} {{ 'aBC'.capitalize() }}",
    "{{ 'hello'.find('l') }} {{ 'hello'.find('z') }} {{ 'hello'.count('l') }} {{ 'a-b'.replace('-', '') }} {{ 'ab'.replace('', '.') }}{{ 'ab'.replace('', '.', 2) }}{{ ''.replace('', '.') }}{{ 'aXbX'.replace('X', '-', 1) }} {{ '-'.join(['a', 'b']) }} {{ '12'.isdigit() }}",
    "{{ items.items() | map('first') | list }} {{ items.keys() | list }} {{ items.values() | list }} {{ items.get('k') }} {{ items.get('z') }} {{ items.get('z', 5) }} {{ items['items'] }}",
    "{{ lines.splitlines() }} {{ [1, 2, 1].count(1) }} {{ [1, 2].index(2) }} {{ messages[2].tool_calls[0]['function'].arguments.b }}",
    "{{ 'ÄÖ'.lower() }} {{ 'straße'.upper() }} {{ '\u00a0x\u3000'.strip() }} {{ 'é'.join(['a', 'b']) }}",
    # What is refused
    "{{ 1 | nosuchfilter }}", "{{ 1 is nosuchtest }}", "{% nosuchtag %}", "{{ 1", "{% if yes %}", "{{ 'a }}", "{{ (1 }}",
    "{% for %}{% endfor %}", "{{ [1, 2][0 }}", "{% break %}", "{{ f(a=1, 2) }}", "{{ 'a'.nosuch() }}", "{{ 1 2 }}", "{# no end",
]

CONVERSATIONS = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Hi"},
     {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "2 + 2?"}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nb"},
     {"role": "user", "content": "c"}],
    [{"role": "user", "content": "Weather?"},
     {"role": "assistant", "content": "", "tool_calls": [
         {"type": "function", "id": "call00001",
          "function": {"name": "get_weather", "arguments": {"city": "Bern", "days": 2}}}]},
     {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": "{\"sun\": true}"}],
    [{"role": "assistant", "content": "I begin."}, {"role": "assistant", "content": "And go on."}],
    [{"role": "system", "content": "S"}],
    [{"role": "user", "content": [{"type": "text", "text": "Sun"}, {"type": "text", "text": "?"}]},
     {"role": "assistant", "content": [{"type": "text", "text": "Yes."}]},
     {"role": "user", "content": "Sure?"}],
    [{"role": "user", "content": "Weather?"},
     {"role": "assistant", "content": "", "reasoning_content": "Ask.\n", "thinking": "Ask.",
      "tool_calls": [{"type": "function", "id": "call00001",
                      "function": {"name": "get_weather", "arguments": {"city": "Bern"}}}]},
     {"role": "tool", "tool_call_id": "call00001", "content": "<sun>\"1\"</sun>"},
     {"role": "assistant", "content": "Sun.", "reasoning_content": "It shines."},
     {"role": "user", "content": "And tomorrow?"},
     {"role": "assistant", "content": "", "thinking": "Two.", "tool_calls": [
         {"type": "function", "id": "call00002",
          "function": {"name": "get_weather", "arguments": {"city": "Bern", "days": 2}}},
         {"type": "function", "id": "call00003",
          "function": {"name": "get_weather", "arguments": {"city": "Genf", "tags": ["a"]}}}]},
     {"role": "tool", "tool_call_id": "call00002", "content": "{}"},
     {"role": "tool", "tool_call_id": "call00003", "content": "[1, 2]"}],
    [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
]

TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city.",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "Its name."},
        "place": {"type": "object", "properties": {"x": {"type": "number", "default": 0.5}}},
        "when": {"anyOf": [{"type": "string"}, {"type": "null"}], "nullable": True},
        "days": {"type": "integer", "enum": [1, 2, 3], "default": 1},
        "units": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}}}}}}]

# Some templates append the members of an enum to a text.
TEXT_TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city.",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "Its name."},
        "units": {"type": "string", "enum": ["C", "F"], "default": "C"},
        "tags": {"type": "array", "items": {"type": "string"}, "nullable": True}}}}}]


# What templates call the switches of reasoning.
SWITCHES = [
    {},
    {"enable_thinking": True, "thinking": True, "thinking_mode": "enabled"},
    {"enable_thinking": False, "thinking": False, "thinking_mode": "disabled"},
    {"reasoning_effort": "none", "reasoning": False},
    {"reasoning_effort": "low", "preserve_thinking": True},
    {"reasoning_effort": "max", "thinking": True, "clear_thinking": False},
]


def of_templates(directory):
    for path in sorted(pathlib.Path(directory).glob("*.jinja")):
        text = path.read_text()
        for messages in CONVERSATIONS:
            for tools in (None, TOOLS, TEXT_TOOLS):
                switches = SWITCHES if tools is TEXT_TOOLS else SWITCHES[:1]
                for prompt, more in itertools.product((True, False), switches):
                    names = {"messages": messages, "tools": tools, "documents": None,
                             "add_generation_prompt": prompt, "bos_token": "<s>",
                             "eos_token": "</s>"} | more
                    try:
                        yield {"name": path.name, "template": text, "names": names,
                               "expected": render(text, names)}
                    except TypeError:
                        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--templates", nargs=2, metavar=("DIR", "FILE"))
    options = parser.parse_args()
    if options.templates:
        cases = list(of_templates(options.templates[0]))
        target = pathlib.Path(options.templates[1])
    else:
        cases = [{"template": each, "names": NAMES, "expected": render(each, NAMES)}
                 for each in CONSTRUCTS]
        for case in cases:
            del case["names"]
        cases = {"now": NOW, "names": NAMES, "cases": cases}
        target = HERE / "constructs.json"
    target.write_text(json.dumps(cases, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
