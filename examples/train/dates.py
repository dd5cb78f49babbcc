# SPDX-License-Identifier: Apache-2.0
"""Dates as people write them in English, made from Python's calendar.

Only what can be read in one way: a month is a word or a Roman numeral, or the
year comes first. Years run from 1900 to 2099, so that a year of two digits,
which could mean either century, never occurs.
"""

import calendar
import datetime

FIRST, LAST = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)

ONES = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen").split()
TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()
ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
            "twelve": "twelfth", "twenty": "twentieth", "thirty": "thirtieth"}
ROMAN = "I II III IV V VI VII VIII IX X XI XII".split()
# Days that stand on the same date every year.
NAMED = {(1, 1): ["New Year's Day"], (2, 14): ["Valentine's Day", "St Valentine's Day"], (3, 17): ["St Patrick's Day"],
         (4, 1): ["April Fools' Day"], (5, 1): ["May Day"], (6, 24): ["Midsummer Day"], (10, 31): ["Halloween"],
         (11, 5): ["Guy Fawkes Night"], (12, 24): ["Christmas Eve"], (12, 25): ["Christmas Day", "Christmas"],
         (12, 26): ["Boxing Day"], (12, 31): ["New Year's Eve"]}


def number_words(n):
    """0 to 99: "eighty-seven"."""
    if n < 20:
        return ONES[n]
    return TENS[n // 10] + ("-" + ONES[n % 10] if n % 10 else "")


def ordinal_words(n):
    """1 to 31: "twenty-third"."""
    head, dash, last = number_words(n).rpartition("-")
    return head + dash + ORDINALS.get(last, last + "th")


def ordinal_digits(n):
    return f"{n}{'th' if 10 < n < 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"


def year_words(year, rng):
    """Every way in which the year is said."""
    century, rest = divmod(year, 100)
    forms = []
    if century == 20:
        forms = [f"two thousand and {number_words(rest)}", f"two thousand {number_words(rest)}"]
    else:
        forms = [f"{number_words(century)} hundred and {number_words(rest)}"]
    if rest == 0:
        return forms[0].partition(" and ")[0]
    if rest >= 10:
        forms += [f"{number_words(century)} {number_words(rest)}"] * 2
    elif rest:
        forms += [f"{number_words(century)} oh {ONES[rest]}", f"{number_words(century)} oh-{ONES[rest]}"]
    return rng.choice(forms)


def write_date(date, rng):
    """One way of writing the date, chosen by rng."""
    day, month, year = date.day, date.month, date.year
    name, short = calendar.month_name[month], calendar.month_abbr[month]
    weekday = calendar.day_name[date.weekday()]
    if rng.random() < 0.3:
        weekday = weekday[:3]
    y = str(year) if rng.random() < 0.7 else year_words(year, rng)
    kind = rng.random()
    if (month, day) in NAMED and kind < 0.5:
        text = rng.choice(NAMED[month, day]) + rng.choice((" ", ", ", " of ", " in ")) + y
    elif month != 2 and day == calendar.monthrange(year, month)[1] and kind < 0.3:
        text = f"the last day of {name}" + rng.choice((" ", ", ")) + y
    elif kind < 0.12:  # figures, the year first
        text = rng.choice((f"{year}/{month:02}/{day:02}", f"{year}.{month:02}.{day:02}", f"{year}/{month}/{day}",
                           f"{year} {name} {day}", f"{year}-{short}-{day:02}", f"{year} {short} {day:02}",
                           f"{year}{month:02}{day:02}", f"{year}, {name} {ordinal_digits(day)}"))
    elif kind < 0.22:  # the month as a word or Roman numeral between figures
        text = rng.choice((f"{day:02}-{short}-{year}", f"{day}-{name}-{year}", f"{day}.{ROMAN[month - 1]}.{year}",
                           f"{day}/{short}/{year}", f"{day}. {name} {year}", f"{day} {ROMAN[month - 1]} {year}",
                           f"{day:02}{short}{year}", f"{short}/{day:02}/{year}"))
    else:
        month_text = rng.choice((name, name, name, short, short + "." if short != name else name))
        if rng.random() < 0.5:  # day, then month
            day_text = rng.choice((f"{day}", f"{day:02}", ordinal_digits(day), f"{ordinal_digits(day)} of",
                                   f"the {ordinal_digits(day)} of", f"the {ordinal_words(day)} of",
                                   f"{ordinal_words(day)} of", f"the {ordinal_words(day)} day of"))
            text = f"{day_text} {month_text}" + rng.choice((" ", " ", ", ", " in the year ")) + y
        else:
            day_text = rng.choice((f"{day}", f"{day:02}", ordinal_digits(day), f"the {ordinal_digits(day)}",
                                   f"the {ordinal_words(day)}", ordinal_words(day)))
            text = f"{month_text} {day_text}" + rng.choice((", ", ", ", " ", " of the year ")) + y
        place = rng.random()
        if place < 0.25:
            text = weekday + rng.choice((", ", " ", ", ")) + text
        elif place < 0.32:
            text = text + rng.choice((f" ({weekday})", f", a {weekday}" if len(weekday) > 3 else f", {weekday}"))
        elif place < 0.40:
            text = rng.choice(("on ", "On ", "dated ", "by ", "since ", "born ")) + text
    case = rng.random()
    if case < 0.15:
        text = text.lower()
    elif case < 0.22:
        text = text.upper()
    elif case < 0.35:
        text = text[0].upper() + text[1:]
    return text
