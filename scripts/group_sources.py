#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which source files can be compiled together, as one.

    scripts/group_sources.py <list> <CMake file>

Each line of the list is a target, the folder of its CMakeLists.txt and one of its files, with tabs
between. The CMake file gives each file that shares a group with others a UNITY_GROUP.

Files of one target go into a group in their order, as long as none declares a name of its own (in
an unnamed namespace, or as a macro) that another one of the group speaks of. Files that are
compiled for another processor than the rest stay alone, and so do those that bring a set of names
with them from a header (*_body.h, kernels/body/), or the kernel's own headers, which declare what the C library's
declare.
"""
import re
import sys

MOST_CHARACTERS = 80_000
ALONE = re.compile(r'#include [<"](\S*_body\.h|kernels/(?:body|avx2|avx512)/\S*|linux/\S*)[>"]|^#pragma clang attribute',
                   re.MULTILINE)
COMMENT_OR_TEXT = re.compile(r'//[^\n]*|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'',
                             re.DOTALL)
TYPE = re.compile(r'(?:struct|class|union|enum(?: class| struct)?|using|namespace) (\w+)')
VARIABLE_OR_FUNCTION = re.compile(r'(?:^|[^\w.])~?(\w+) ?(?:\(|=[^=]|\{|;|\[)')
# The rest of a declaration, a template's parameters, a name of another namespace, a test.
NOT_DECLARING = re.compile(r'[^A-Za-z_]|$|template|using [\w:]+;|[A-Z_]+\(')
KEYWORDS = {'void', 'sizeof', 'alignas', 'decltype', 'noexcept', 'static_assert', 'operator'}
# What is a file's own outside of unnamed namespaces, too.
INTERNAL = re.compile(r'(static|const|constexpr) ')
MACRO = re.compile(r'^#define (\w+)', re.MULTILINE)
# A name that stands for itself, neither a member nor qualified: of a type, a constant or a function.
# Other words are local variables, which may hide another file's function.
NAME = re.compile(r'(?<![\w.:>])([A-Z]\w*|k[A-Z]\w*|[a-z_]\w*(?=\())')


def own_names(text):
    """The names that a file declares for itself alone."""
    names = set(MACRO.findall(text))
    unnamed = False
    for line in text.split('\n'):
        if line.startswith('namespace {'):
            unnamed = True
        elif line.startswith('}  //'):
            unnamed = False
        elif re.match(r'using \w+ =|namespace \w+ =', line):
            names.add(line.split()[1])
        elif (unnamed or INTERNAL.match(line)) and not NOT_DECLARING.match(line):
            found = TYPE.match(line)
            # The name comes first in `int f(`, later in `std::function<int(int)> f(`: all of them.
            names.update([found.group(1)] if found else VARIABLE_OR_FUNCTION.findall(line))
    return names - KEYWORDS


class Source:
    def __init__(self, path):
        with open(path, encoding='utf-8') as file:
            text = file.read()
        self.path = path
        self.length = len(text)
        self.alone = bool(ALONE.search(text)) or re.search('/(x86|avx2|avx512)/', path) is not None
        text = COMMENT_OR_TEXT.sub(lambda match: '//' if match[0].startswith('//') else '""', text)
        self.own = own_names(text)
        self.spoken = set(NAME.findall(text))


class Group:
    def __init__(self, number):
        self.number = number
        self.length = 0
        self.own = set()
        self.spoken = set()
        self.paths = []

    def has_room(self, source):
        return (self.length + source.length <= MOST_CHARACTERS and self.own.isdisjoint(source.spoken)
                and source.own.isdisjoint(self.spoken))

    def add(self, source):
        self.length += source.length
        self.own |= source.own
        self.spoken |= source.spoken
        self.paths.append(source.path)


def group(paths):
    groups = []
    for source in map(Source, paths):
        if source.alone:
            continue
        found = next((each for each in groups if each.has_room(source)), None)
        if found is None:
            found = Group(len(groups))
            groups.append(found)
        found.add(source)
    return [each for each in groups if len(each.paths) > 1]


def main():
    of_target = {}
    with open(sys.argv[1], encoding='utf-8') as file:
        for line in file.read().splitlines():
            target, folder, path = line.split('\t')
            of_target.setdefault((target, folder), []).append(path)
    with open(sys.argv[2], 'w', encoding='utf-8') as out:
        for (target, folder), paths in of_target.items():
            for each in group(paths):
                files = ''.join(f'\n  "{path}"' for path in each.paths)
                print(f'set_source_files_properties({files}\n  DIRECTORY "{folder}"'
                      f' PROPERTIES UNITY_GROUP {target}_{each.number})', file=out)


if __name__ == '__main__':
    main()
