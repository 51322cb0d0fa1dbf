"""What ranks do in the tests of send and recv."""

from __future__ import annotations

import os
import random
import signal
import time

import numpy as np

from conccl.core.errors import ConcclError
from conccl.transports.board import MAIL
from conccl.transports.courier import Courier
from conccl.transports.mail import ANY, Mail
from conccl.transports.waiting import Waiting
from transports.jobs import transport


class Box:
    """A rank's mail, with arrays instead of addresses."""

    def __init__(self, rank, count, folder, **more) -> None:
        self.host = transport(rank, count, folder, **more)
        host = self.host
        waiting = Waiting(host.board, host.peers, door=MAIL, timeout_s=host.waiting.timeout_s)
        self.mail = Mail(host.segment, host.geometry, host.board, waiting, name=lambda: "tests")
        self.courier = Courier(self.mail, waiting, host.board)

    def send(self, rank, data, tag=0):
        data = np.ascontiguousarray(data)
        one = self.mail.post_send(
            rank, tag=tag, address=data.ctypes.data, nbytes=data.nbytes, dtype=str(data.dtype), keep=data
        )
        self.courier.watch(one)
        return one

    def recv(self, rank, data, tag=0):
        one = self.mail.post_receive(
            rank, tag=tag, address=data.ctypes.data, nbytes=data.nbytes, dtype=str(data.dtype), keep=data
        )
        self.courier.watch(one)
        return one

    def close(self):
        self.courier.close()
        self.host.close()


def filled(number, nbytes):
    return (np.arange(nbytes, dtype=np.int64) * 7 + number).astype(np.uint8)


def in_any_order(rank, count, folder):
    """Tags are asked for backwards; sizes from nothing to more than a ring."""
    box = Box(rank, count, folder)
    sizes = [0, 1, 63, 64, 65, 100_000, 262_144, 700_001]
    if rank == 0:
        sent = [box.send(1, filled(tag, size), tag) for tag, size in enumerate(sizes)]
        for one in sent:
            box.courier.wait(one)
    else:
        for tag in reversed(range(len(sizes))):
            data = np.zeros(sizes[tag], np.uint8)
            box.courier.wait(box.recv(0, data, tag))
            np.testing.assert_array_equal(data, filled(tag, sizes[tag]))
    box.host.close()
    return True


def same_tag_in_order(rank, count, folder):
    box = Box(rank, count, folder)
    got = []
    if rank == 0:
        for number in range(300):
            box.courier.wait(box.send(1, np.array([number])))
    else:
        for _ in range(300):
            data = np.zeros(1, np.int64)
            box.courier.wait(box.recv(0, data))
            got.append(int(data[0]))
    box.close()
    return got


def from_anyone(rank, count, folder):
    box = Box(rank, count, folder)
    if rank:
        box.courier.wait(box.send(0, np.array([rank]), tag=5))
        box.courier.wait(box.send(0, np.array([rank * 10]), tag=6))
        box.close()
        return []
    got = []
    for tag in (6, 5):
        for _ in range(count - 1):
            data = np.zeros(1, np.int64)
            one = box.recv(ANY, data, tag)
            box.courier.wait(one)
            got.append((tag, one.rank, int(data[0])))
    box.close()
    return sorted(got)


def both_ways_at_once(rank, count, folder):
    """Everyone sends a large message to everyone before anyone receives."""
    box = Box(rank, count, folder)
    others = [one for one in range(count) if one != rank]
    sent = [box.send(one, filled(rank, 900_000)) for one in others]
    asked = {one: np.zeros(900_000, np.uint8) for one in others}
    received = [box.recv(one, data) for one, data in asked.items()]
    for one in (*sent, *received):
        box.courier.wait(one)
    for one, data in asked.items():
        np.testing.assert_array_equal(data, filled(one, 900_000))
    box.close()
    return True


def in_the_background(rank, count, folder):
    """The sender computes and never waits; its large message goes through all the same."""
    box = Box(rank, count, folder)
    if rank == 0:
        one = box.send(1, filled(3, 3_000_000))
        began = time.monotonic()
        while not one.done and time.monotonic() - began < 10:
            sum(range(1000))
        took = one.done
        box.close()
        return took
    data = np.zeros(3_000_000, np.uint8)
    box.courier.wait(box.recv(0, data))
    np.testing.assert_array_equal(data, filled(3, 3_000_000))
    box.close()
    return True


def other_sizes(rank, count, folder, nbytes, dtype):
    box = Box(rank, count, folder)
    try:
        if rank == 0:
            box.courier.wait(box.send(1, np.zeros(100, np.uint8), tag=9))
            time.sleep(0.3)
            box.courier.wait(box.recv(1, np.zeros(1, np.uint8)))
        else:
            box.courier.wait(box.recv(0, np.zeros(nbytes, dtype), tag=9))
    except ConcclError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def killed_while_sending(rank, count, folder):
    box = Box(rank, count, folder)
    if rank == 0:
        data = filled(0, 5_000_000)  # more than the ring takes
        box.mail.post_send(1, tag=0, address=data.ctypes.data, nbytes=data.nbytes, dtype="uint8", keep=data)
        os.kill(os.getpid(), signal.SIGKILL)
    data = np.zeros(5_000_000, np.uint8)
    began = time.monotonic()
    try:
        box.courier.wait(box.recv(0, data))
    except ConcclError as error:
        return f"{type(error).__name__}: {error}", time.monotonic() - began
    return "nothing", 0.0


def nobody_receives(rank, count, folder):
    box = Box(rank, count, folder, timeout_s=0.5)
    try:
        if rank == 0:
            box.courier.wait(box.send(1, filled(0, 5_000_000)))
        else:
            time.sleep(1.2)
    except ConcclError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def at_random(rank, count, folder, number, seed):
    """Messages of random sizes between random pairs, asked for in another order."""
    box = Box(rank, count, folder)
    source = random.Random(seed)
    messages = []
    for tag in range(number):
        a, b = source.sample(range(count), 2)
        messages.append((a, b, tag, source.choice([0, 8, source.randrange(5000), source.randrange(400_000)])))
    mine = [one for one in messages if one[1] == rank]
    random.Random(seed + rank).shuffle(mine)
    sent = [box.send(b, filled(tag, size), tag) for a, b, tag, size in messages if a == rank]
    for a, _, tag, size in mine:
        data = np.zeros(size, np.uint8)
        box.courier.wait(box.recv(a, data, tag))
        np.testing.assert_array_equal(data, filled(tag, size))
    for one in sent:
        box.courier.wait(one)
    box.close()
    return len(mine)


def large(rank, count, folder, nbytes):
    """One message of more bytes than 32 bits count."""
    box = Box(rank, count, folder, timeout_s=600)
    data = np.full(nbytes, 7 * (1 - rank), np.uint8)
    if rank == 0:
        data[-1] = 9
        box.courier.wait(box.send(1, data))
    else:
        box.courier.wait(box.recv(0, data))
    box.close()
    return bool((data[:-1] == 7).all() and data[-1] == 9)
