"""The locks of redis-py and redlock-py under the control of another process.

A line on standard input is a command, its words separated by tabs: `number thread command word...`. Each thread is a
thread of this process, made when its name first comes up, and runs its commands one after the other. The answer is a
line on standard output, `number ok value` or `number failed exception message`, in the order in which commands end.
All times are milliseconds.

    open    client kind url...                     makes a client; kind is redis-py or redlock-py
    close   client
    lock    client name lease wait                 true, or false if the wait was not enough; 0 tries once; a lease of
                                                   0 has no end, in redis-py
    unlock  client name
    extend  client name lease
    owned   client name                            whether this thread holds the lock, as the library sees it
    locked  client name                            whether anybody does
    token   client name                            what this thread's hold is known by
    count   client name lease url counter times    adds to a counter that only the lock protects, by GET and SET, and
                                                   returns how often somebody else had added in between

It ends with its standard input, at once and without a word to Redis.
"""

import logging
import os
import queue
import random
import sys
import threading
import time

import redis
import redlock

# How long a waiter sleeps before it tries again. The libraries' own 100 and 200 ms would make the counting slow.
RETRY = 0.005

# More than any wait of a test: what is no answer by then is a failure.
TIMEOUT = 30


class RedisPy:
    """`redis.lock.Lock`, on one server."""

    def __init__(self, servers, name):
        (server,) = servers
        self.lock = redis.lock.Lock(server, name, sleep=RETRY)

    def acquire(self, lease, wait):
        self.lock.timeout = lease / 1000 if lease else None
        return self.lock.acquire(blocking=wait > 0, blocking_timeout=wait / 1000)

    def unlock(self):
        self.lock.release()

    def extend(self, lease):
        return self.lock.extend(lease / 1000, replace_ttl=True)

    def owned(self):
        return self.lock.owned()

    def locked(self):
        return self.lock.locked()

    def token(self):
        return self.lock.local.token.decode()


class RedlockPy:
    """`redlock.Redlock`, which can neither extend nor tell whether it still holds anything."""

    def __init__(self, servers, name):
        self.servers = servers
        self.name = name
        self.held = None

    def redlock(self, wait):
        attempts = 1 + int(wait / 1000 / RETRY)
        return redlock.Redlock(self.servers, retry_count=attempts, retry_delay=RETRY)

    def acquire(self, lease, wait):
        # What it returns is a hold or False.
        held = self.redlock(wait).lock(self.name, lease)
        self.held = held or self.held
        return bool(held)

    def unlock(self):
        self.redlock(0).unlock(self.held)

    def token(self):
        return self.held.key.decode()


KINDS = {"redis-py": RedisPy, "redlock-py": RedlockPy}


class Client:
    """The connections to some servers."""

    def __init__(self, kind, urls):
        self.kind = KINDS[kind]
        # Replies as text are what most programs ask for, and a token that is no text would break them.
        self.servers = [redis.Redis.from_url(url, socket_timeout=TIMEOUT, decode_responses=True) for url in urls]

    def close(self):
        for server in self.servers:
            server.close()


class Worker(threading.Thread):
    """A thread that runs its commands one after the other."""

    clients = {}
    out = threading.Lock()

    def __init__(self):
        super().__init__(daemon=True)
        self.commands = queue.SimpleQueue()
        self.locks = {}
        self.start()

    def run(self):
        while True:
            number, command, *words = self.commands.get()
            try:
                value = getattr(self, "do_" + command)(*words)
                text = str(value).lower() if isinstance(value, bool) else str(value)
                self.say(number, "ok", text)
            except Exception as problem:
                self.say(number, "failed", type(problem).__name__, " ".join(str(problem).split())[:200])

    @classmethod
    def say(cls, *words):
        with cls.out:
            print(*words, sep="\t", flush=True)

    def lock(self, client, name):
        if (client, name) not in self.locks:
            opened = self.clients[client]
            self.locks[client, name] = opened.kind(opened.servers, name)
        return self.locks[client, name]

    def do_open(self, client, kind, *urls):
        self.clients[client] = Client(kind, urls)
        return "opened"

    def do_close(self, client):
        self.clients.pop(client).close()
        return "closed"

    def do_lock(self, client, name, lease, wait):
        return self.lock(client, name).acquire(int(lease), int(wait))

    def do_unlock(self, client, name):
        self.lock(client, name).unlock()
        return "unlocked"

    def do_extend(self, client, name, lease):
        return self.lock(client, name).extend(int(lease))

    def do_owned(self, client, name):
        return self.lock(client, name).owned()

    def do_locked(self, client, name):
        return self.lock(client, name).locked()

    def do_token(self, client, name):
        return self.lock(client, name).token()

    def do_count(self, client, name, lease, url, counter, times):
        lock = self.lock(client, name)
        server = redis.Redis.from_url(url, socket_timeout=TIMEOUT)
        own = 0
        others = 0
        for _ in range(int(times)):
            if not lock.acquire(int(lease), TIMEOUT * 1000):
                raise TimeoutError("the lock is not to be had")
            value = int(server.get(counter) or 0)
            others += value != own
            own = value + 1
            server.set(counter, own)
            lock.unlock()
            # A moment in which somebody else may have it.
            time.sleep(random.uniform(0, 0.002))
        server.close()
        return others


def main():
    # What redlock-py logs is a node that does not answer an unlock.
    logging.disable(logging.CRITICAL)
    workers = {}
    Worker.say("ready")
    for line in sys.stdin:
        number, thread, *words = line.rstrip("\n").split("\t")
        if thread not in workers:
            workers[thread] = Worker()
        workers[thread].commands.put([number, *words])
    os._exit(0)


main()
