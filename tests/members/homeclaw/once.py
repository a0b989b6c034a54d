"""A HomeClaw plugin of type `subprocess` whose faults are its capabilities: what it is asked for is what it does."""
import json
import os
import signal
import sys
import time



def answer(**result):
    print(json.dumps(result), flush=True)


def left_behind():
    """Says who is left behind, and stays as long as anybody lets it; stdout is still open."""
    with open("descendants", "a") as descendants:
        print(os.getpid(), file=descendants, flush=True)
    time.sleep(600)


def fork(asked):
    """Leaves a child that holds stdout."""
    answer(text="I go")
    if os.fork() == 0:
        left_behind()


def daemon(asked):
    """Leaves an orphan that is in a session of its own and carries nothing of ours."""
    answer(text="I go")
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            script = "import os, sys, time; print(os.getpid(), file=open('descendants', 'a'), flush=True); time.sleep(600)"
            os.execve(sys.executable, [sys.executable, "-S", "-c", script], {})
        os._exit(0)
    while not os.path.exists("descendants"):
        time.sleep(0.005)


def hang(asked):
    """With a child, so that there is a tree."""
    print("I hang", file=sys.stderr, flush=True)
    with open("descendants", "a") as descendants:
        print(os.getpid(), file=descendants, flush=True)
    if os.fork() == 0:
        left_behind()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def flood(asked):
    block = b"x" * 65536
    for _ in range(100 * 2**20 // len(block)):
        sys.stdout.buffer.write(block)


def fail(asked):
    answer(success=True, text="never mind what I say")
    print("line 1\nline 2 of a traceback", file=sys.stderr)
    sys.exit(3)


def fail_in_words(asked):
    answer(success=False, error="no such city")
    sys.exit(1)


def crash(asked):
    os.kill(os.getpid(), signal.SIGSEGV)


def garbage(asked):
    sys.stdout.buffer.write(b"<html>\xff\x1b[31m no JSON at all\n")


def chatty(asked):
    print("loading the model")
    answer(level="info", message="loaded")
    answer(success=True, text="the answer", metadata={"took": 1}, rank=2)
    print("bye")


def silent(asked):
    os.close(1)


def rich(asked):
    answer(success=True, text="sunny", temperature=20, metadata={"source": "sky"})


def refuse(asked):
    answer(request_id=asked["request_id"], plugin_id="once", success=False, text="", error="I will not", metadata={})


def count(asked):
    """Says how many of it have run at a time, at the most."""
    mine = f"running-{os.getpid()}"
    open(mine, "w").close()
    most = 0
    for _ in range(10):
        most = max(most, sum(name.startswith("running-") for name in os.listdir(".")))
        time.sleep(0.02)
    os.remove(mine)
    answer(text=str(most))


def environment(asked):
    answer(text=json.dumps(dict(os.environ)))


def place(asked):
    answer(text=os.getcwd())


def echo(asked):
    answer(text=json.dumps(asked))


def deaf(_):
    """Does not read what it is asked, which is more than a pipe holds."""
    os.close(0)
    time.sleep(0.1)
    answer(text="I did not listen")


def main():
    if "--deaf" in sys.argv:
        return deaf(None)
    with open("launches", "a") as launches:
        print(os.getpid(), file=launches)
    line = sys.stdin.readline()
    asked = json.loads(line)
    assert line.endswith("\n") and not sys.stdin.read(), "one line, and then the end"
    globals()[asked.get("capability_id", "echo")](asked)


if __name__ == "__main__":
    main()
