"""All-reduce and its kind as Python programs use them, through mpi4py, which opens MPI with dlopen.

Every MPI type with every operator, with values for which Python computes the exact result. Rank 0 prints a line for each
combination, also for those that MPI does not allow: what they do must not depend on whether a library is preloaded.
"""
import hashlib
import operator
import sys
from functools import reduce

import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
me, size = world.Get_rank(), world.Get_size()
lines = []
checks = 0


def check(what, got, want):
    global checks
    checks += 1
    if got != want:
        sys.stderr.write("rank %d: %s: got %.300r, and %.300r was expected\n" % (me, what, got, want))
        world.Abort(1)


def mix(rank, index, salt=0):
    """A number of 64 bits that depends on all of its arguments."""
    x = (rank * 0x9E3779B97F4A7C15 + index * 0xC2B2AE3D27D4EB4F + salt * 0x165667B19E3779F9 + 0x27D4EB2F165667C5) % 2**64
    for _ in range(2):
        x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9 % 2**64
    return x ^ x >> 32


# ---- Types: what they hold, and how numpy spells them; bits of the largest integer that is exact ----------------------

SIGNED = "SIGNED_CHAR SHORT INT LONG LONG_LONG INT8_T INT16_T INT32_T INT64_T".split()
UNSIGNED = "UNSIGNED_CHAR UNSIGNED_SHORT UNSIGNED UNSIGNED_LONG UNSIGNED_LONG_LONG UINT8_T UINT16_T UINT32_T UINT64_T".split()
FORTRAN_INT = "INTEGER INTEGER1 INTEGER2 INTEGER4 INTEGER8".split()
ADDRESS = "AINT OFFSET COUNT".split()
FLOAT = "FLOAT DOUBLE LONG_DOUBLE REAL DOUBLE_PRECISION REAL4 REAL8".split()
COMPLEX = ("C_COMPLEX C_FLOAT_COMPLEX C_DOUBLE_COMPLEX C_LONG_DOUBLE_COMPLEX COMPLEX DOUBLE_COMPLEX COMPLEX8 COMPLEX16 "
           "CXX_FLOAT_COMPLEX CXX_DOUBLE_COMPLEX CXX_LONG_DOUBLE_COMPLEX").split()
PAIR = {"FLOAT_INT": "f4", "DOUBLE_INT": "f8", "LONG_INT": "i8", "INT_INT": "i4", "SHORT_INT": "i2", "LONG_DOUBLE_INT": "g"}

ORDER = "SUM PROD MAX MIN LAND LOR LXOR BAND BOR BXOR MAXLOC MINLOC".split()
ARITHMETIC, LOGICAL, BITS = set(ORDER[:4]), set(ORDER[4:7]), set(ORDER[7:10])
# What MPI allows (MPI 4.0, section 6.9.2).
ALLOWED = {"signed": ARITHMETIC | LOGICAL | BITS, "unsigned": ARITHMETIC | LOGICAL | BITS, "fortran": ARITHMETIC | BITS,
           "address": ARITHMETIC | BITS, "float": ARITHMETIC, "complex": {"SUM", "PROD"}, "logical": LOGICAL,
           "byte": BITS, "pair": {"MAXLOC", "MINLOC"}, "other": set()}
PYTHON = {"SUM": operator.add, "PROD": operator.mul, "MAX": max, "MIN": min,
          "LAND": lambda a, b: int(bool(a) and bool(b)), "LOR": lambda a, b: int(bool(a) or bool(b)),
          "LXOR": lambda a, b: int(bool(a) != bool(b)),
          "BAND": operator.and_, "BOR": operator.or_, "BXOR": operator.xor,
          "MAXLOC": lambda a, b: (max(a[0], b[0]), a[1] if a[0] > b[0] else b[1] if b[0] > a[0] else min(a[1], b[1])),
          "MINLOC": lambda a, b: (min(a[0], b[0]), a[1] if a[0] < b[0] else b[1] if b[0] < a[0] else min(a[1], b[1]))}


def describe(name, datatype):
    """(kind, numpy type) of an MPI type."""
    length = datatype.Get_size()
    for kind, names in (("signed", SIGNED), ("unsigned", UNSIGNED), ("fortran", FORTRAN_INT), ("address", ADDRESS)):
        if name in names:
            return kind, numpy.dtype("%s%d" % ("u" if kind == "unsigned" else "i", length))
    if name in FLOAT:
        return "float", numpy.dtype({4: "f4", 8: "f8", 16: "g"}[length])
    if name in COMPLEX:
        return "complex", numpy.dtype({8: "c8", 16: "c16", 32: "G"}[length])
    if name in PAIR:
        return "pair", numpy.dtype([("value", PAIR[name]), ("index", "i4")], align=True)
    if name in ("C_BOOL", "CXX_BOOL", "LOGICAL", "BOOL", "F_BOOL"):
        return "logical", numpy.dtype("u%d" % length)
    if name in ("BYTE",):
        return "byte", numpy.dtype("u1")
    return "other", numpy.dtype("u1")


def value(kind, dtype, op, rank, index):
    """One input, as a Python number; such that no partial result overflows or is rounded."""
    x = mix(rank, index, len(op))
    if kind == "pair":
        return (x % 5, int(mix(rank, index, 77) % 1000))
    if kind == "logical" or op in LOGICAL:
        return int(x % 3 > 0) if kind == "logical" else x % 3
    if kind == "complex":
        return complex(x % 7 - 3, x // 7 % 7 - 3) if op == "PROD" else complex(x % 2001 - 1000, x // 2001 % 2001 - 1000)
    if op == "PROD":
        return x % 2 + 1 if dtype.itemsize == 1 else x % 5 - (0 if dtype.kind == "u" else 2)
    bits = {"f": 23 if dtype.itemsize == 4 else 52}.get(dtype.kind, 8 * dtype.itemsize - (dtype.kind == "i"))
    top = 2**bits if op in BITS or op in ("MAX", "MIN") else 2**bits // size
    low = x % top
    # Open MPI 4.1 takes MPI_OFFSET for unsigned, and MPI_UNSIGNED_LONG for signed: values that are ordered alike in both.
    if dtype.itemsize == 8 and kind in ("address", "unsigned"):
        return low >> 1
    return low if dtype.kind == "u" or x >> 63 else -low


def to_array(dtype, values, kind):
    array = numpy.zeros(len(values), dtype)
    if kind == "pair":
        array["value"] = [v[0] for v in values]
        array["index"] = [v[1] for v in values]
    else:
        array[:] = values
    return array


def to_list(array, kind):
    """Python numbers again. A true logical may be any value but zero."""
    if kind == "pair":
        return [(int(a), int(b)) for a, b in zip(array["value"], array["index"])]
    if kind == "logical":
        return [int(bool(v)) for v in array.tolist()]
    if kind == "float":
        return [int(v) if v == int(v) else v for v in array]
    if kind == "complex":
        return [complex(v) for v in array]
    return array.tolist()


# ---- Every call with one type and operator -----------------------------------------------------------------------------

def results(dtype, datatype, kind, op, opname, count):
    """Names the calls and gives their results, and what Python expects of each (None where MPI does not allow it)."""
    inputs = [[value(kind, dtype, opname, rank, i) for i in range(count * size)] for rank in range(size)]
    total = [reduce(PYTHON[opname], column) for column in zip(*inputs)] if opname in ALLOWED[kind] else None
    mine = to_array(dtype, inputs[me], kind)
    before = to_list(mine, kind)

    def made(n, start=None):
        array = to_array(dtype, [(7, 7) if kind == "pair" else 7] * (n + 1), kind)
        if start is not None:
            array[:len(start)] = start
        return array

    def expect(first, n):
        return None if total is None else total[first:first + n]

    receive = made(count)
    world.Allreduce([mine, count, datatype], [receive, count, datatype], op)
    yield "Allreduce", receive, count, expect(0, count)
    receive = made(count, mine[:count])
    world.Allreduce(MPI.IN_PLACE, [receive, count, datatype], op)
    yield "Allreduce in place", receive, count, expect(0, count)

    # Two at once, the second started last and completed first.
    receive, second = made(count), made(count, mine[:count])
    requests = [world.Iallreduce([mine, count, datatype], [receive, count, datatype], op),
                world.Iallreduce(MPI.IN_PLACE, [second, count, datatype], op)]
    requests[1].Wait()
    while not requests[0].Test():
        pass
    yield "Iallreduce", receive, count, expect(0, count)
    yield "Iallreduce in place", second, count, expect(0, count)

    # Counts are those of one rank's part, also of the buffer that holds all parts.
    receive = made(count)
    world.Reduce_scatter_block([mine, count, datatype], [receive, count, datatype], op)
    yield "Reduce_scatter_block", receive, count, expect(me * count, count)
    receive = made(count * size, mine)
    world.Reduce_scatter_block(MPI.IN_PLACE, [receive, count, datatype], op)
    yield "Reduce_scatter_block in place", receive, count, expect(me * count, count)

    check("the input after %s" % opname, to_list(mine, kind), before)


def run_pair(name, datatype, opname, count):
    """One type and operator: the results are checked, and what became of it is noted."""
    op = getattr(MPI, opname)
    kind, dtype = describe(name, datatype)
    if kind == "other":
        dtype = numpy.dtype("V%d" % datatype.Get_extent()[1])
        # Of a type that has no operators, or none that Python knows: zeros, which are zero in every format.
        send, receive = numpy.zeros(count, dtype), numpy.zeros(count, dtype)
        try:
            world.Allreduce([send, count, datatype], [receive, count, datatype], op)
            return "does " + hashlib.md5(receive.tobytes()).hexdigest()[:8]
        except MPI.Exception as error:
            return MPI.Get_error_string(error.Get_error_class())
    digest = hashlib.md5()
    try:
        for call, array, n, want in results(dtype, datatype, kind, op, opname, count):
            what = "%s of %d %s with %s" % (call, count, name, opname)
            got = to_list(array[:n], kind)
            digest.update(repr(got).encode())
            if want is not None:
                check(what, got, [int(bool(w)) for w in want] if kind == "logical" else want)
                check(what + ": behind the result", to_list(array[-1:], kind),
                      [(7, 7)] if kind == "pair" else [1] if kind == "logical" else [7])
    except MPI.Exception as error:
        if opname in ALLOWED[kind]:
            check("%s with %s" % (name, opname), str(error), "no error")
        return MPI.Get_error_string(error.Get_error_class())
    return "does " + digest.hexdigest()[:8]


def every_type():
    types = [(name, t) for name, t in sorted(vars(MPI).items())
             if isinstance(t, MPI.Datatype) and t != MPI.DATATYPE_NULL and t.Get_size() > 0]
    # Of several names of a type, the one that is known here.
    types.sort(key=lambda pair: describe(*pair)[0] == "other")
    seen = []
    for name, datatype in types:
        if datatype in seen:
            continue
        seen.append(datatype)
        for opname in ORDER:
            outcomes = [run_pair(name, datatype, opname, count) for count in (1, 13)]
            lines.append("%s %s: %s" % (name, opname, ", ".join(outcomes)))
        kind, dtype = describe(name, datatype)
        if kind != "other":
            allgather(name, datatype, kind, dtype)


def allgather(name, datatype, kind, dtype):
    for count in (1, 13):
        parts = [[value(kind, dtype, "MAX", rank, i) for i in range(count)] for rank in range(size)]
        want = sum(parts, [])
        mine, receive = to_array(dtype, parts[me], kind), to_array(dtype, want[::-1], kind)
        world.Allgather([mine, count, datatype], [receive, count, datatype])
        check("Allgather of %d %s" % (count, name), to_list(receive, kind), want)
        receive = to_array(dtype, want[::-1], kind)
        receive[me * count:(me + 1) * count] = mine
        world.Allgather(MPI.IN_PLACE, [receive, count, datatype])
        check("Allgather in place of %d %s" % (count, name), to_list(receive, kind), want)


# ---- Sizes, communicators, operators of the program's, requests among others ---------------------------------------------

def sizes():
    """From nothing to what goes in chunks; sums of integers that floats hold exactly."""
    for dtype in ("i4", "f4", "f8", "c16"):
        for count in (0, 1, 2, 1000, 4097, 300001):
            inputs = [(numpy.arange(count) * (2 * rank + 3) + rank) % 1009 for rank in range(size)]
            mine, receive = inputs[me].astype(dtype), numpy.full(count, 7, dtype)
            world.Allreduce(mine, receive)
            check("Allreduce of %d %s" % (count, dtype), receive.tobytes(), sum(inputs).astype(dtype).tobytes())
            receive[:] = 7
            world.Iallreduce(mine, receive).Wait()
            check("Iallreduce of %d %s" % (count, dtype), receive.tobytes(), sum(inputs).astype(dtype).tobytes())


def on_communicator(what, comm):
    """Often enough for the library to take the communicator over."""
    ranks = comm.allgather(me)
    for i in range(20):
        got = numpy.zeros(3, "i8")
        comm.Allreduce(numpy.array([me + i, me * me, -me]), got)
        check(what, got.tolist(), [sum(r + i for r in ranks), sum(r * r for r in ranks), -sum(ranks)])
    check(what + ", pickled", comm.allreduce({me}, lambda a, b: a | b), set(ranks))
    check(what + ", pickled list", comm.allreduce([comm.rank]), list(range(comm.size)))
    check(what + ", pickled maximum", comm.allreduce((me % 2, me), MPI.MAXLOC), max_location(ranks))


def max_location(ranks):
    return reduce(PYTHON["MAXLOC"], [(r % 2, r) for r in ranks])


def communicators():
    on_communicator("on the world", world)
    on_communicator("on one rank", MPI.COMM_SELF)
    copy = world.Dup()
    on_communicator("on a copy", copy)
    split = copy.Split(me % 2, -me)
    copy.Free()
    on_communicator("on a split, with the ranks backwards", split)
    created = world.Create_group(world.group.Incl(range(size - 1, -1, -1)))
    on_communicator("on a created one", created)
    cart = world.Create_cart([size], periods=True, reorder=True)
    on_communicator("on a ring", cart)
    row = split.Split(split.rank % 2)
    on_communicator("on a split of a split", row)
    for comm in (row, cart, created, split):
        comm.Free()
    # Between two groups MPI gives each the sum of the other.
    side = int(me >= (size + 1) // 2)
    if size == 1:
        return
    half = world.Split(side)
    both = half.Create_intercomm(0, world, 0 if side else (size + 1) // 2)
    for i in range(10):
        got = numpy.zeros(1, "i4")
        both.Allreduce(numpy.array([me + i], "i4"), got)
        check("between two groups", int(got[0]), sum(r + i for r in range(size) if int(r >= (size + 1) // 2) != side))
    both.Free()
    half.Free()


def own_operators():
    """A product of matrices does not commute: the order of the ranks shows in the result. A derived type holds one."""
    matrix = MPI.INT32_T.Create_contiguous(4).Commit()

    def multiply(left, right, datatype):
        a = numpy.frombuffer(left, "i4").reshape(-1, 2, 2).astype("i8")
        b = numpy.frombuffer(right, "i4")
        b[:] = (numpy.matmul(a, b.reshape(-1, 2, 2)) % 9973).reshape(-1)

    def add(left, right, datatype):
        b = numpy.frombuffer(right, "i4")
        b[:] += numpy.frombuffer(left, "i4")

    for function, commute in ((multiply, False), (add, True)):
        op = MPI.Op.Create(function, commute)
        for count in (1, 5, 700):
            inputs = [(numpy.arange(4 * count) * (r + 2) + 3 * r + 1).astype("i4") % 97 for r in range(size)]
            want = inputs[-1].copy()
            for part in inputs[-2::-1]:
                function(part.tobytes(), want, None)
            got = numpy.zeros(4 * count, "i4")
            world.Allreduce([inputs[me], count, matrix], [got, count, matrix], op)
            check("Allreduce of %d with an operator of the program's" % count, got.tolist(), want.tolist())
            got[:] = 0
            world.Iallreduce([inputs[me], count, matrix], [got, count, matrix], op).Wait()
            check("Iallreduce of %d with an operator of the program's" % count, got.tolist(), want.tolist())
        op.Free()
    matrix.Free()


def requests():
    """All-reduce requests in one list with those of messages, completed in every way."""
    left, right = (me - 1) % size, (me + 1) % size
    for way in ("Waitall", "Waitany", "Waitsome", "Testall", "Testany", "Testsome", "Wait backwards"):
        for turn in range(3):
            inputs = [numpy.full(50, me * (k + 1) + turn, "i4") for k in range(3)]
            sums, messages = [numpy.zeros(50, "i4") for _ in range(3)], numpy.zeros(4, "i4")
            greeting = numpy.full(4, me + 100, "i4")
            pending = [world.Irecv(messages, left, 5)]
            for k in range(3):
                pending.append(world.Iallreduce(inputs[k], sums[k]))
            pending.append(world.Isend(greeting, right, 5))
            complete(way, pending)
            check(way + ": all requests are complete", [r == MPI.REQUEST_NULL for r in pending], [True] * 5)
            check(way + ": the message", messages.tolist(), [left + 100] * 4)
            for k in range(3):
                check(way, sums[k].tolist(), [sum(r * (k + 1) + turn for r in range(size))] * 50)


def complete(way, pending):
    done = 0
    if way == "Waitall":
        MPI.Request.Waitall(pending)
    elif way == "Testall":
        while not MPI.Request.Testall(pending):
            pass
    elif way == "Wait backwards":
        for request in pending[::-1]:
            request.Wait()
    else:
        while done < len(pending):
            got = getattr(MPI.Request, way)(pending)
            if way == "Waitany":
                done += got != MPI.UNDEFINED
            elif way == "Testany":
                done += got[1] and got[0] != MPI.UNDEFINED
            else:
                done += len(got or [])


every_type()
sizes()
communicators()
own_operators()
requests()
checked = world.allreduce(checks)
if me == 0:
    print("\n".join(lines))
    print("%d checks" % checked)
