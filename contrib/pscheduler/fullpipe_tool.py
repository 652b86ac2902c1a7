"""What the executables of this tool share. They read and print JSON; an error is a sentence on standard error."""

import datetime
import ipaddress
import json
import re
import sys

PORT = 5201
# Longest test, and most input: neither is to fill a host.
MOST_SECONDS = 24 * 3600
MOST_INPUT = 1 << 20
# Time for the other end to start, and for both to exchange results.
HEAD_START = 3
END = 8

DURATION = re.compile(r"P(?:(\d{1,3})D)?(?:T(?:(\d{1,4})H)?(?:(\d{1,5})M)?(?:(\d{1,6}(?:\.\d{1,9})?)S)?)?")
HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")
CONGESTION = re.compile(r"[A-Za-z0-9_]{1,15}")


def fail(why):
    sys.exit(f"fullpipe: {why}")


def read_input():
    """Returns the object on standard input."""
    text = sys.stdin.read(MOST_INPUT + 1)
    if len(text) > MOST_INPUT:
        fail("the input is longer than 1 MiB")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        fail("the input is no JSON")
    if not isinstance(found, dict):
        fail("the input is no object of JSON")
    return found


def print_result(result):
    json.dump(result, sys.stdout)
    print()


def seconds(text):
    """Returns an ISO 8601 duration in seconds."""
    parts = DURATION.fullmatch(text) if isinstance(text, str) else None
    if not parts or not any(parts.groups()):
        raise ValueError("no duration, such as PT10S")
    days, hours, minutes, rest = (float(part or 0) for part in parts.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    if total > MOST_SECONDS:
        raise ValueError("longer than a day")
    return total


def number(least, most):
    def checked(value):
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"no whole number from {least} to {most}")
        return value
    return checked


def congestion(value):
    if not isinstance(value, str) or not CONGESTION.fullmatch(value):
        raise ValueError("no congestion control")
    return value


def host(value):
    if isinstance(value, str) and "%" not in value:
        try:
            return str(ipaddress.ip_address(value))
        except ValueError:
            if HOST.fullmatch(value):
                return value
    raise ValueError("no host")


def flag(value):
    if type(value) is not bool:
        raise ValueError("neither true nor false")
    return value


# What this tool can do of a throughput test: how a value is read, and the flag of fullpipe that takes it.
OPTIONS = {
    "schema": (number(1, 7), None),
    "source": (host, None),
    "source-node": (host, None),
    "dest": (host, None),
    "dest-node": (host, None),
    "single-ended": (flag, None),
    "single-ended-port": (number(1, 65535), None),
    "link-rtt": (seconds, None),
    "ip-version": (number(4, 6), None),
    "duration": (seconds, "--time"),
    "omit": (seconds, "--omit"),
    "interval": (seconds, "--interval"),
    "parallel": (number(1, 128), "--streams"),
    "bandwidth": (number(0, 10**15), "--bitrate"),
    "fq-rate": (number(1, 10**15), "--fq-rate"),
    "window-size": (number(1, 10**10), "--buffer"),
    "buffer-length": (number(1, 10**9), "--length"),
    "mss": (number(88, 65535), "--mss"),
    "ip-tos": (number(0, 255), "--tos"),
    "local-address": (host, "--bind"),
    "congestion": (congestion, "--congestion"),
    "udp": (flag, "--udp"),
    "reverse": (flag, "--reverse"),
    "zero-copy": (flag, "--zerocopy"),
}


def read_spec(test):
    """Returns the options of a test, and what this tool cannot do of them, in sentences."""
    test = test if isinstance(test, dict) else {}
    if test.get("type") != "throughput":
        return {}, ["the test is not of the type throughput"]
    spec = test.get("spec")
    if not isinstance(spec, dict):
        return {}, ["the test has no specification"]
    options, reasons = {}, []
    for name, value in spec.items():
        if name not in OPTIONS:
            reasons.append(f"fullpipe does not support {name[:40]}")
            continue
        try:
            options[name] = OPTIONS[name][0](value)
        except ValueError as error:
            reasons.append(f"{name} is {error}")
    if "dest" not in spec:
        reasons.append("the test has no dest")
    return options, reasons


def length(options):
    """Returns the seconds that data flows, without what comes before and after."""
    return options.get("duration", 10) + options.get("omit", 0)


def wait_until(schedule):
    """Returns the seconds from now to the start of a schedule."""
    try:
        start = datetime.datetime.fromisoformat(schedule["start"].replace("Z", "+00:00"))
        wait = (start - datetime.datetime.now(datetime.timezone.utc)).total_seconds()
    except (AttributeError, KeyError, TypeError, ValueError):
        fail("the schedule has no start with a time zone")
    if wait > MOST_SECONDS:
        fail("the schedule starts in more than a day")
    return max(wait, 0)
