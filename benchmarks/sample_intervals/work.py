"""Work for the interpreter of Python: text, sorting, grids, shortest paths, sieves."""

import collections
import heapq
import json
import random
import re

rng = random.Random(1)
words = ["".join(rng.choices("abcdefgh", k=rng.randint(2, 9))) for _ in range(3000)]


def text():
    rows = [
        {"id": i, "name": rng.choice(words), "tags": rng.choices(words, k=5), "v": rng.random()}
        for i in range(6000)
    ]
    written = json.dumps(rows)
    rows = json.loads(written)
    rows.sort(key=lambda row: (row["name"], row["v"]))
    return collections.Counter(re.findall(r"[a-d]+e[a-h]*", written))


def grid(size):
    cells = [[(x * y) % 7 for x in range(size)] for y in range(size)]
    for _ in range(3):
        cells = [
            [(cells[y][x - 1] + cells[y - 1][x] + cells[y][(x + 1) % size]) % 7 for x in range(size)]
            for y in range(size)
        ]
    return sum(map(sum, cells))


def shortest(nodes):
    graph = {i: [(rng.randrange(nodes), rng.random()) for _ in range(4)] for i in range(nodes)}
    best, queue = {}, [(0.0, 0)]
    while queue:
        distance, node = heapq.heappop(queue)
        if node not in best:
            best[node] = distance
            for to, weight in graph[node]:
                heapq.heappush(queue, (distance + weight, to))
    return best


def sieve(limit):
    prime = [True] * limit
    for i in range(2, 448):
        if prime[i]:
            for j in range(i * i, limit, i):
                prime[j] = False
    return sum(prime)


for _ in range(2):
    print(len(text()), grid(150), len(shortest(4000)), sieve(200_000))
