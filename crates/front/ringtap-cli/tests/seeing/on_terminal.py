# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs a command on a pseudo-terminal by a script of steps; prints what came of it as JSON.

Steps are arguments before `--`: `wait:TEXT`, `keys:TEXT`, `size:COLSxROWS`, `signal:NAME`,
`touch:FILE`, `pause:SECONDS`, `close:`. What waits, waits for text drawn after the step before it.
"""
import fcntl, json, os, pty, select, signal, struct, subprocess, sys, termios, time

LIMIT = 180
at = sys.argv.index("--")
steps, command = sys.argv[1:at], sys.argv[at + 1:]
deadline = time.monotonic() + LIMIT
master, slave = pty.openpty()


def size(text):
    columns, rows = map(int, text.split("x"))
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def own_terminal():
    os.setsid()
    if "close:" not in steps:  # without it, no signal comes when the terminal goes
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


size("80x24")
before = termios.tcgetattr(slave)
child = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, preexec_fn=own_terminal)
drawn, mark = b"", 0


def more(seconds):
    global drawn
    if select.select([master], [], [], seconds)[0]:
        drawn += os.read(master, 65536)


def fail(why):
    child.kill()
    sys.exit(f"{why}; drawn at the end: {drawn[mark:][-1000:]!r}")


for step in steps:
    verb, _, text = step.partition(":")
    if verb == "wait":
        while text.encode() not in drawn[mark:]:
            more(0.1)
            if time.monotonic() > deadline or child.poll() is not None:
                fail(f"no {text!r}")
        continue
    mark = len(drawn)
    if verb == "keys":
        os.write(master, text.encode().decode("unicode_escape").encode())
    elif verb == "size":
        size(text)
    elif verb == "signal":
        child.send_signal(getattr(signal, text))
    elif verb == "touch":
        open(text, "w").close()
    elif verb == "close":  # as when the window of a terminal is killed
        os.close(slave)
        os.close(master)
        print(json.dumps({"code": child.wait(LIMIT)}))
        sys.exit()
    elif verb == "pause":
        time.sleep(float(text))

while child.poll() is None:
    more(0.1)
    if time.monotonic() > deadline:
        fail("it does not end")
while select.select([master], [], [], 0.2)[0]:
    more(0)
tail = drawn[drawn.rfind(b"\x1b[?1049l"):]
print(json.dumps({
    "code": child.returncode,
    "restored": termios.tcgetattr(slave) == before,
    "left": b"\x1b[?1049l" in drawn,
    "after": tail.decode(errors="replace"),
    "coloured": b"\x1b[38;5;" in drawn or b"\x1b[31" in drawn or b"\x1b[33" in drawn,
    "drawn": drawn.decode(errors="replace"),
}))
