r"""Attacks on real processes, each with its figure. `make test-security` runs their long forms, `make test` short ones.

How to write one, in `test_<part>.py`:

    async def test_unread_responses_use_a_bounded_amount_of_memory(target: Target, attack: Attack, form: Form) -> None:
        async with attack("unread responses", on="webapp", others=("webapp", "messages")) as strike:
            for _ in range(form.pick(short=20, long=60)):
                _, writer = await target.dial("webapp", target.unknown_address())
                writer.write(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)
            await strike.last(form.pick(short=1.0, long=15.0))
        strike.figure("responses written ahead", measured=..., limit=16)

- `target` is a whole installation (webapp, coreapp, network, robots 1555011xxxx that read and 1555014xxxx that echo) on
  loopback with a business that is logged in, shared by all modules of the session. Default settings, SQLite
  (`--database=mariadb` for the other). A part that needs other settings, or ruins what it attacks, makes its own
  target: `async with scene.running(tmp_path, environment={...}) as own: Attack(own, figures, form)`.
- `target.unknown_address()` is a loopback address that was not used before (127.x.y.z): the limits per address are
  fresh.
  `target.dial(place, address)` is a raw connection from it, closed after the test.
- `attack` measures the resources of the process `on` during the attack, beyond those for `others` alone: the growth of
  its resident memory to its exact peak (limit 64 MiB), its CPU as a share of one core (limit 5 %), and the longest
  wait of each kind of other caller (limit 1 s more than three times their longest wait without an attack, none of them
  refused; `delay=`, `refusals=`). Another limit is an argument, `None` records without one. The kinds of others are in
  `bystanders.py`, which is a separate process.
- In a short form of a second or two, one-time costs weigh more, and other tests run at the same time: it allows three
  times the CPU and the delay, and 0.4 s of CPU more. The long form keeps the limits as they are.
- `strike.figure(...)` and `figures.record(...)` are for everything else that has a limit. Every figure is written to
  `build/security/figures.jsonl` before it is asserted, and `make test-security` prints them all as a table.
- `form.pick(short=..., long=...)`, `form.count(...)`: the short forms of a module take a few seconds altogether, a long
  one at most a minute.
"""
