# SPDX-License-Identifier: Apache-2.0
"""Arithmetic word problems with worked answers, made from templates with a fixed seed.

Every answer is computed, never typed, so it is right. Format as in the GSM8K lines of fetch_data.py:
"Question: ...\nAnswer: <steps>\n#### <number>".
"""

import random

NAMES = ("Anna Ben Carla David Emma Felix Grace Hugo Ida Jonas Kate Leo Mia Noah Olga Paul Rosa Sam Tina Victor "
         "Wendy Yusuf Zoe Alice Bruno Clara Dina Erik Fatima George Helen Ivan Julia Karim Lena Marco Nina Oscar").split()
THINGS = ("apples books pencils marbles stickers cookies oranges coins shells stamps cards eggs flowers candles toys "
          "buttons tickets balloons muffins bottles notebooks cupcakes beads roses pears peaches magazines").split()
PLACES = ["the market", "a shop", "the bakery", "a fair", "the garden", "school", "the library", "a farm", "the station"]
BOXES = ["boxes", "bags", "baskets", "crates", "jars", "packs", "drawers", "shelves"]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def gain_and_lose(r):
    name, thing, a, b = r.choice(NAMES), r.choice(THINGS), r.randint(5, 90), r.randint(2, 60)
    c = r.randint(1, a + b - 1)
    verb = r.choice(["buys", "finds", "gets", "picks"])
    return (f"{name} has {a} {thing}. At {r.choice(PLACES)} {name} {verb} {b} more and then gives {c} to a friend. "
            f"How many {thing} does {name} have now?",
            [f"First {name} has {a} + {b} = {a + b} {thing}.", f"After giving away {c}, {a + b} - {c} = {a + b - c} {thing} are left."],
            a + b - c)


def boxes_and_rest(r):
    name, thing, box = r.choice(NAMES), r.choice(THINGS), r.choice(BOXES)
    n, k, rest = r.randint(2, 15), r.randint(3, 25), r.randint(1, 20)
    return (f"{name} packs {thing} into {n} {box} with {k} {thing} in each. {rest} {thing} do not fit. "
            f"How many {thing} are there in all?",
            [f"In the {box} there are {n} * {k} = {n * k} {thing}.", f"With the rest that makes {n * k} + {rest} = {n * k + rest} {thing}."],
            n * k + rest)


def price_and_change(r):
    name, thing, other = r.choice(NAMES), *r.sample(THINGS, 2)
    n, p, m, q = r.randint(2, 9), r.randint(1, 9), r.randint(1, 7), r.randint(2, 12)
    total = n * p + m * q
    paid = (total // 10 + r.randint(1, 3)) * 10
    return (f"At {r.choice(PLACES)} {name} buys {n} {thing} for ${p} each and {m} {other} for ${q} each. "
            f"{name} pays with ${paid}. How much change does {name} get?",
            [f"The {thing} cost {n} * {p} = ${n * p}.", f"The {other} cost {m} * {q} = ${m * q}.",
             f"Together that is {n * p} + {m * q} = ${total}.", f"The change is {paid} - {total} = ${paid - total}."],
            paid - total)


def times_as_many(r):
    (a, b), thing, k, n = r.sample(NAMES, 2), r.choice(THINGS), r.randint(2, 6), r.randint(3, 40)
    word = {2: "twice", 3: "three times", 4: "four times", 5: "five times", 6: "six times"}[k]
    return (f"{a} has {n} {thing}. {b} has {word} as many. How many {thing} do they have together?",
            [f"{b} has {k} * {n} = {k * n} {thing}.", f"Together they have {n} + {k * n} = {n + k * n} {thing}."],
            n + k * n)


def half_sold(r):
    name, thing, half, d = r.choice(NAMES), r.choice(THINGS), r.randint(4, 60), r.randint(2, 9)
    return (f"{name} brings {2 * half} {thing} to {r.choice(PLACES)} and sells half of them for ${d} each. "
            f"How much money does {name} earn?",
            [f"Half of {2 * half} is {2 * half} / 2 = {half} {thing}.", f"They bring {half} * {d} = ${half * d}."],
            half * d)


def weekly_work(r):
    name, hours, days, pay, weeks = r.choice(NAMES), r.randint(2, 8), r.randint(2, 6), r.randint(8, 30), r.randint(2, 5)
    week = hours * days * pay
    return (f"{name} works {hours} hours a day, {days} days a week, and earns ${pay} an hour. "
            f"How much does {name} earn in {weeks} weeks?",
            [f"In a week {name} works {hours} * {days} = {hours * days} hours.", f"That pays {hours * days} * {pay} = ${week} a week.",
             f"In {weeks} weeks it is {week} * {weeks} = ${week * weeks}."],
            week * weeks)


def share_equally(r):
    name, thing, people, each, extra = r.choice(NAMES), r.choice(THINGS), r.randint(2, 9), r.randint(2, 20), r.randint(1, 15)
    total = people * each
    return (f"{name} has {total - extra if total > extra else total} {thing} and buys {extra if total > extra else 0} more. "
            f"{name} shares them equally among {people} children. How many {thing} does each child get?",
            [f"There are {total - extra if total > extra else total} + {extra if total > extra else 0} = {total} {thing}.",
             f"Each child gets {total} / {people} = {each} {thing}."],
            each)


def distance(r):
    name, v, t, w, u = r.choice(NAMES), r.randint(10, 90), r.randint(2, 6), r.randint(10, 90), r.randint(1, 5)
    return (f"{name} drives {t} hours at {v} km per hour and then {u} hours at {w} km per hour. How far does {name} drive?",
            [f"The first part is {t} * {v} = {t * v} km.", f"The second part is {u} * {w} = {u * w} km.",
             f"In all it is {t * v} + {u * w} = {t * v + u * w} km."],
            t * v + u * w)


def ages(r):
    (a, b), n, d, y = r.sample(NAMES, 2), r.randint(4, 40), r.randint(2, 20), r.randint(2, 15)
    return (f"{a} is {n} years old. {b} is {d} years older. How old will {b} be in {y} years?",
            [f"{b} is {n} + {d} = {n + d} years old now.", f"In {y} years {b} will be {n + d} + {y} = {n + d + y} years old."],
            n + d + y)


def days_of_reading(r):
    name, (d1, d2, d3) = r.choice(NAMES), r.sample(DAYS, 3)
    a, b, c = (r.randint(5, 60) for _ in range(3))
    pages = a + b + c + r.randint(10, 200)
    return (f"A book has {pages} pages. {name} reads {a} pages on {d1}, {b} pages on {d2} and {c} pages on {d3}. "
            f"How many pages are left to read?",
            [f"{name} reads {a} + {b} + {c} = {a + b + c} pages.", f"So {pages} - {a + b + c} = {pages - a - b - c} pages are left."],
            pages - a - b - c)


def percent_off(r):
    name, thing, p, price = r.choice(NAMES), r.choice(THINGS), r.choice([10, 20, 25, 50]), 20 * r.randint(1, 20)
    cut = price * p // 100
    return (f"A set of {thing} costs ${price}. {name} gets {p}% off. How much does {name} pay?",
            [f"The discount is {price} * {p} / 100 = ${cut}.", f"{name} pays {price} - {cut} = ${price - cut}."],
            price - cut)


def rows_and_columns(r):
    name, thing, a, b, c = r.choice(NAMES), r.choice(THINGS), r.randint(3, 20), r.randint(3, 20), r.randint(1, 9)
    return (f"{name} lays out {thing} in {a} rows of {b}. Then {name} takes away {c} from each row. How many {thing} remain?"
            if b > c else f"{name} lays out {thing} in {a} rows of {b}. Then {name} adds {c} to each row. How many {thing} are there?",
            [f"Each row now has {b} {'-' if b > c else '+'} {c} = {b - c if b > c else b + c} {thing}.",
             f"There are {a} * {b - c if b > c else b + c} = {a * (b - c if b > c else b + c)} {thing}."],
            a * (b - c if b > c else b + c))


TEMPLATES = [gain_and_lose, boxes_and_rest, price_and_change, times_as_many, half_sold, weekly_work,
             share_equally, distance, ages, days_of_reading, percent_off, rows_and_columns]


def problem(number):
    """Problem `number` of an endless, fixed list."""
    r = random.Random(number)
    question, steps, answer = r.choice(TEMPLATES)(r)
    return f"Question: {question}\nAnswer: " + "\n".join(steps) + f"\n#### {answer}"


def documents(count, per_document=5):
    for first in range(0, count, per_document):
        yield "\n\n".join(problem(first + i) for i in range(per_document))
