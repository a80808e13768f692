# SPDX-License-Identifier: MIT OR Apache-2.0
"""Agents: what they do for their manager, and that nothing of them stays, whatever ends whom."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path

from ringtap_lab.agent import processes
from ringtap_lab.agent.daemon import KEPT_BYTES, Daemon, DaemonError, Output
from ringtap_lab.manager import link
from ringtap_lab.manager.inventory import Host
from ringtap_lab.manager.link import Agent, LinkError, RequestError

LAB = Path(__file__).resolve().parents[1]
HERE = Host("here", ("sensor",))
#: A daemon that ignores Ctrl-C, with a grandchild that left its process group.
STUBBORN = "sh -c 'trap \"\" INT; setsid sleep {mark} & sleep {mark}'"
LIMIT_S = 60.0


def living(mark: str) -> list[str]:
    """Processes with this mark in their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark.encode() in words:
            found.append(process.name)
    return found


def wait_until(condition) -> bool:
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def talk(work, host: Host = HERE):
    """Runs `work` with an agent."""

    async def main():
        async with Agent(host) as agent:
            return await work(agent)

    return asyncio.run(main())


class Requests(unittest.TestCase):
    def test_a_program_is_run_to_its_end(self):
        work = lambda agent: agent.ask("run", name="x", command="sh -c 'echo hi; echo no >&2; exit 3'", limit_s=20)
        found = talk(work)
        self.assertLess(found.pop("cpu_seconds"), found.pop("seconds") + 1)
        self.assertEqual(found, {"status": 3, "output": "hi\n\nno\n", "output_bytes": 6})

    def test_facts_and_counters_are_those_of_the_machine(self):
        async def work(agent):
            return agent.facts, await agent.ask("counters", devices=["lo"])

        facts, counters = talk(work)
        self.assertEqual(facts["cores"], os.cpu_count())
        self.assertEqual(len(counters["processors"]), os.cpu_count())
        self.assertIn("rx_packets", counters["devices"]["lo"])

    def test_what_goes_wrong_is_said_and_the_agent_goes_on(self):
        async def work(agent):
            for do, arguments, why in [
                ("start", {"name": "x", "command": "/no/such/program"}, "No such file"),
                ("run", {"name": "x", "command": "sleep 100", "limit_s": 0.1}, "still there after 0.1 s"),
                ("put", {"name": "../x", "text": ""}, "not the name of a file"),
                ("take", {"name": "/etc/passwd"}, "not the name of a file"),
                ("nonsense", {}, "no such request"),
                ("counters", {"devices": ["no-such-device"]}, "no-such-device"),
                ("counters", {"nonsense": 1}, "nonsense"),
            ]:
                with self.assertRaisesRegex(RequestError, why):
                    await agent.ask(do, **arguments)
            await agent.ask("start", name="x", command="false")
            with self.assertRaisesRegex(RequestError, "false: ended with 1"):
                await agent.ask("ready", name="x", line="never", attached="nothing", device="lo", limit_s=20)
            with self.assertRaisesRegex(RequestError, "false: ended with 1"):
                await agent.ask("kill", name="x")
            return await agent.ask("ping")

        self.assertIn("time_ns", talk(work))

    def test_a_program_does_not_command_the_terminal_that_shows_its_fault(self):
        async def work(agent):
            await agent.ask("start", name="x", command=r"printf '\033]0;title\007\033[2J'")
            with self.assertRaises(RequestError) as caught:
                await agent.ask("ready", name="x", line="never", attached="nothing", device="lo", limit_s=20)
            return str(caught.exception)

        self.assertIn("?]0;title??[2J", talk(work))

    def test_what_a_program_wrote_just_before_it_ended_is_in_its_fault(self):
        async def main(folder: str):
            daemon = Daemon("sh -c 'echo last words >&2'", stdin_ends_it=False, folder=Path(folder))
            daemon.process.wait()  # no turn of the loop in between
            try:
                daemon.must_live()
            finally:
                daemon.kill()

        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(DaemonError, "ended with 0: last words"):
            asyncio.run(main(folder))

    def test_readiness_is_seen_in_the_output(self):
        async def work(agent):
            await agent.ask("start", name="x", command="sh -c 'read _; echo now; sleep 100'", stdin_ends_it=True)
            wait = {"name": "x", "line": "now", "attached": "nothing", "device": "lo"}
            with self.assertRaisesRegex(RequestError, "not ready after 0.1 s"):
                await agent.ask("ready", limit_s=0.1, **wait)
            with self.assertRaisesRegex(RequestError, "sleep 100"):
                await agent.ask("stop", names=["x"], limit_s=0.1)

        talk(work)

    def test_a_file_in_the_scratch_folder_is_measured_and_removed(self):
        async def work(agent):
            path = await agent.ask("put", name="a", text="hello")
            mode = Path(path).parent.stat().st_mode & 0o777
            sizes = [await agent.ask("take", name="a") for _ in range(2)]
            return path, mode, sizes

        path, mode, sizes = talk(work)
        self.assertEqual((mode, sizes), (0o700, [5, None]))
        self.assertFalse(Path(path).parent.exists())


class Floods(unittest.TestCase):
    def test_a_program_that_prints_without_end_is_kept_short(self):
        async def work(agent):
            command = "sh -c 'echo begin; yes | head -c 20000000; echo end'"
            return await agent.ask("run", name="x", command=command, limit_s=LIMIT_S)

        found = talk(work)
        self.assertEqual(found["output_bytes"], 20_000_010)
        self.assertLess(len(found["output"]), 2 * KEPT_BYTES + 100)
        self.assertTrue(found["output"].startswith("begin\n"))
        self.assertTrue(found["output"].endswith("end\n\n"))

    def test_the_middle_of_an_output_is_left_out_and_counted(self):
        one = Output()
        for piece in (b"a" * 100_000, b"b" * 1000, b"c" * KEPT_BYTES):
            one.add(piece)
        text = one.text()
        self.assertEqual(text.count("a"), KEPT_BYTES)
        self.assertEqual(text.count("c"), KEPT_BYTES)
        self.assertIn(f"[{100_000 + 1000 - KEPT_BYTES} bytes left out]", text)

    def test_an_agent_that_answers_too_much_or_nonsense_loses_its_manager(self):
        for words, why in [
            ("import sys\nwhile True: sys.stdout.write('x' * 65536)", "more than"),
            ("print('hello')", "nonsense"),
            ("print('[1]')", "nonsense"),
            ("import sys; sys.exit('no python here')", "no python here"),
        ]:
            boot, link.BOOT = link.BOOT, words
            try:
                with self.subTest(words), self.assertRaisesRegex(LinkError, why):
                    talk(lambda agent: agent.ask("ping"))
            finally:
                link.BOOT = boot


class Ends(unittest.TestCase):
    """Who is killed; nothing may stay."""

    def manager(self, mark: str) -> tuple[subprocess.Popen, int, Path]:
        """A manager with a stubborn daemon; gives its process, the agent's worker and the scratch folder."""
        program = textwrap.dedent("""
            import asyncio, sys
            from ringtap_lab.manager.inventory import Host
            from ringtap_lab.manager.link import Agent
            async def main():
                async with Agent(Host("here", ("sensor",))) as agent:
                    await agent.ask("start", name="x", command=sys.argv[1])
                    print(agent.facts["pid"], agent.facts["scratch"], flush=True)
                    await asyncio.sleep(1000)
            asyncio.run(main())
        """)
        process = subprocess.Popen(
            [sys.executable, "-c", program, STUBBORN.format(mark=mark)], stdout=subprocess.PIPE, text=True, cwd=LAB
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        worker, scratch = process.stdout.readline().split()
        self.assertTrue(wait_until(lambda: len(living(mark)) == 2), "the daemon runs")
        return process, int(worker), Path(scratch)

    def gone(self, mark: str, scratch: Path) -> None:
        self.assertTrue(wait_until(lambda: not living(mark)), "the daemon and its grandchild ended")
        self.assertTrue(wait_until(lambda: not scratch.exists()), "the scratch folder is removed")

    def test_a_manager_that_is_killed(self):
        manager, _, scratch = self.manager(mark := f"71101{os.getpid()}")
        manager.kill()
        self.gone(mark, scratch)

    def test_a_manager_that_stops_without_closing_the_connection(self):
        manager, _, scratch = self.manager(mark := f"71102{os.getpid()}")
        manager.send_signal(signal.SIGSTOP)
        self.gone(mark, scratch)

    def test_an_agent_whose_worker_is_killed(self):
        _, worker, scratch = self.manager(mark := f"71103{os.getpid()}")
        os.kill(worker, signal.SIGKILL)
        self.gone(mark, scratch)

    def test_a_scratch_folder_whose_agent_and_guardian_were_killed_is_removed_by_the_next(self):
        old = Path(tempfile.mkdtemp(prefix=processes.PREFIX, dir=processes.SCRATCH_PARENT))
        used = talk(lambda agent: agent.ask("hello"))["scratch"]
        self.assertFalse(old.exists())
        self.assertFalse(Path(used).exists())

    def test_an_agent_that_cannot_start_is_said(self):
        with self.assertRaisesRegex(LinkError, "no-such-python"):
            talk(lambda agent: agent.ask("ping"), Host("here", ("sensor",), python="no-such-python"))
