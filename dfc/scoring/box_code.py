"""What runs in the two boxes of `dfc.scoring.programs`, as text: nothing here is imported or run by this process.

All of it is hostile as soon as a program is in the other box; what a box of tests decodes is therefore bounded.
"""

# Values as JSON, the same in both boxes. A list begins with a letter that says what it is.
VALUES = r"""
import builtins, json, os, sys
channel_in, channel_out = os.fdopen(os.dup(0), "rb"), os.dup(1)
null = os.open("/dev/null", os.O_RDWR)
for number in (0, 1, 2):
    os.dup2(null, number)
MOST = 100_000
DIGITS = 10_000  # of a Decimal, and what its exponent may be
BITS = 100_000  # of both parts of a Fraction, which are reduced
objects = []

def say(data, dumps=json.dumps, write=os.write):
    rest = memoryview(dumps(data).encode() + b"\n")
    while rest:
        rest = rest[write(channel_out, rest):]

def hear(loads=json.loads):
    line = channel_in.readline()
    if not line:
        os._exit(0)
    return loads(line)

def encode(value, depth=0):
    if depth > 60:
        raise ValueError("nested too deep")
    each = lambda values: [encode(one, depth + 1) for one in values]
    if value is None or value is True or value is False:
        return value
    if isinstance(value, Remote):
        return ["o", value._number]
    if isinstance(value, int):
        value = int.__index__(value)
        return value if abs(value) < 2**53 else ["i", hex(value)]
    if isinstance(value, float):
        return ["f", float.__repr__(value)]
    if isinstance(value, str):
        return str.__str__(value)  # of a member of an enumeration its value, which is what it equals
    if isinstance(value, complex):
        return ["c", repr(value.real), repr(value.imag)]
    if isinstance(value, (bytes, bytearray)):
        return ["b", bytes(value).hex()]
    for letter, kind in (("l", list), ("t", tuple), ("s", set), ("z", frozenset)):
        if isinstance(value, kind):
            return [letter, *each(value)]
    if type(value) is not dict:
        for letter, module, name, write in KINDS:
            kind = getattr(sys.modules.get(module), name, None)  # who has not loaded it has none of its values
            if isinstance(kind, type) and isinstance(value, kind):
                return [letter, *write(value, lambda one: encode(one, depth + 1))]
    if isinstance(value, dict):
        return ["d", *([encode(k, depth + 1), encode(v, depth + 1)] for k, v in value.items())]
    if isinstance(value, range):
        return ["r", value.start, value.stop, value.step]
    if hasattr(type(value), "__next__") or isinstance(value, (type({}.keys()), type({}.values()), type({}.items()))):
        items = []
        for item in value:
            items.append(item)
            if len(items) > MOST:
                raise ValueError("too many items")
        return ["n", *each(items)]
    return refer(value)

def decode(data):
    if not isinstance(data, list):
        return data
    letter, *rest = data
    each = lambda: [decode(one) for one in rest]
    return {
        "i": lambda: int(rest[0], 16),
        "f": lambda: float(rest[0]),
        "c": lambda: complex(float(rest[0]), float(rest[1])),
        "b": lambda: bytes.fromhex(rest[0]),
        "l": each, "t": lambda: tuple(each()), "s": lambda: set(each()), "z": lambda: frozenset(each()),
        "d": lambda: {decode(k): decode(v) for k, v in rest},
        "r": lambda: range(*rest),
        "n": lambda: iter(each()),
        "o": lambda: resolve(rest[0]),
        "D": lambda: decimal_of(*rest), "q": lambda: fraction_of(*rest),
        "T": lambda: __import__("datetime").datetime(*whole(rest[:7], 7), zone(rest[7]), fold=rest[8]),
        "m": lambda: __import__("datetime").time(*whole(rest[:4], 4), zone(rest[4]), fold=rest[5]),
        "y": lambda: __import__("datetime").date(*whole(rest, 3)),
        "e": lambda: __import__("datetime").timedelta(*whole(rest, 3)),
        "Q": lambda: __import__("collections").deque([decode(one) for one in rest[1:]], rest[0]),
        "O": lambda: __import__("collections").OrderedDict((decode(k), decode(v)) for k, v in rest),
        "C": lambda: __import__("collections").Counter({decode(k): decode(v) for k, v in rest}),
        "F": lambda: __import__("collections").defaultdict(
            FACTORIES.get(rest[0]), {decode(k): decode(v) for k, v in rest[1:]}),
    }[letter]()

def whole(values, count):
    if len(values) != count or any(type(one) is not int for one in values):
        raise TypeError(f"expected {count} integers")
    return values

def decimal_of(text):
    number = __import__("decimal").Decimal(text) if type(text) is str and len(text) <= 2 * DIGITS else None
    if number is None or number.is_finite() and abs(number.adjusted()) > DIGITS:
        raise ValueError("too large a Decimal")
    return number

def fraction_of(*parts):
    if any(type(one) is not str or len(one) > BITS // 4 for one in parts):
        raise ValueError("too large a Fraction")
    return __import__("fractions").Fraction(*(int(one, 16) for one in parts))

def zone(shift):
    kinds = __import__("datetime")
    return None if shift is None else kinds.timezone(kinds.timedelta(*whole(shift, 3)))

def write_decimal(value, each):
    text = str(value)
    decimal_of(text)
    return [text]

def write_fraction(value, each):
    parts = [hex(value.numerator), hex(value.denominator)]
    fraction_of(*parts)
    return parts

def write_shift(value):
    return None if value is None else [value.days, value.seconds, value.microseconds]

def write_clock(value, each):
    parts = [value.hour, value.minute, value.second, value.microsecond]
    return [*parts, write_shift(value.utcoffset()), value.fold]

def write_pairs(value, each):
    return [[each(k), each(v)] for k, v in value.items()]

FACTORIES = {kind.__name__: kind for kind in (int, float, str, list, tuple, set, dict)}

# Letter, module, name, and what follows the letter; a kind stands before those that it is one of.
KINDS = [
    ("D", "decimal", "Decimal", write_decimal),
    ("q", "fractions", "Fraction", write_fraction),
    ("T", "datetime", "datetime",
     lambda value, each: [value.year, value.month, value.day, *write_clock(value, each)]),
    ("y", "datetime", "date", lambda value, each: [value.year, value.month, value.day]),
    ("m", "datetime", "time", write_clock),
    ("e", "datetime", "timedelta", lambda value, each: write_shift(value)),
    ("Q", "collections", "deque", lambda value, each: [value.maxlen, *map(each, value)]),
    ("O", "collections", "OrderedDict", write_pairs),
    ("C", "collections", "Counter", write_pairs),
    ("F", "collections", "defaultdict", lambda value, each: [
        next((n for n, kind in FACTORIES.items() if kind is value.default_factory), None), *write_pairs(value, each)]),
]

class Remote:
    pass
"""

# The program's box: answers calls until it is ended.
PROGRAM = r"""
def refer(value):
    objects.append(value)
    return ["o", len(objects) - 1]

def resolve(number):
    return objects[number]

namespace = {"__name__": "program", "__builtins__": builtins}
failed = None
try:
    exec(compile(hear(), "program", "exec"), namespace)
except Exception as error:
    failed = error
while True:
    request = hear()
    if "defined" in request:
        say({"value": [name for name in request["defined"] if failed is None and name in namespace]})
        continue
    try:
        if failed is not None:
            raise failed
        called = request["call"]
        function = namespace[called] if isinstance(called, str) else decode(called)
        if "attribute" in request:
            found = getattr(function, request["attribute"])
        else:
            arguments = [decode(one) for one in request["args"]]
            found = function(*arguments, **{name: decode(one) for name, one in request["kwargs"].items()})
        answer = {"value": encode(found)}
    except Exception as error:
        answer = {"error": type(error).__name__, "text": repr(error)[:200]}
    say(answer)
"""

# The tests' box: runs the tests once and says so with the number it was given.
TESTS = r"""
task = hear()
calls = 0

def refer(value):
    raise TypeError(f"a {type(value).__name__} cannot be handed to the program")

def ask(request):
    global calls
    calls += 1
    say(request)
    answer = hear()
    if "value" in answer:
        return decode(answer["value"])
    kind = getattr(builtins, str(answer.get("error")), None)
    if kind is StopIteration:
        kind = RuntimeError
    raise (kind if isinstance(kind, type) and issubclass(kind, Exception) else Exception)(str(answer.get("text")))

class Remote:
    def __init__(self, called):
        self._called = called
        self._number = called[1] if isinstance(called, list) else None
    def __call__(self, *args, **kwargs):
        args = [encode(one) for one in args]
        return ask({"call": self._called, "args": args, "kwargs": {k: encode(v) for k, v in kwargs.items()}})
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return ask({"call": self._called, "attribute": name})

def resolve(number):
    return Remote(["o", number])

class Names(dict):
    def __missing__(self, name):
        if name in task["modules"]:
            return self.setdefault(name, __import__(name))
        if name in task["builtins"]:
            return Remote(name)
        if task["entry_point"] or hasattr(builtins, name):
            raise KeyError(name)
        return Remote(name)

names = Names(__name__="tests", __builtins__=builtins)
verdict = "failed"
try:
    for part in ("setup", "prelude", "tests"):
        exec(compile(task[part], part, "exec"), names)
    if task["entry_point"]:
        names["check"](Remote(task["entry_point"]))
    if calls:
        verdict = task["nonce"]
except Exception:
    pass
say({"verdict": verdict})
"""
