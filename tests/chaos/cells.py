"""Named cells: one fault at one state of a reply. Each is played on a scene; afterwards the checker judges.

A cell asserts only what the checker cannot know: that the fault fell where it was to fall, and how the reply ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from schemas.reply_records import Stopped
from tests.chaos.client import Client
from tests.chaos.plan import REPLICAS, Cut
from tests.chaos.scene import LONG, TEXT, Scene, other

ABANDON_AFTER_S = 5.0


def replica_killed_before_its_first_token(scene: Scene) -> None:
    for n in range(5):  # a router that was slow took the frozen replicas for dead
        with scene.stack.held(*REPLICAS):
            client = scene.ask(f"unborn-{n}")
            sent = scene.within(3.0, lambda client=client: scene.serving(client))
            if sent and (victim := scene.serving(client)):
                scene.stack.kill(victim)
                break
    scene.finish(client)
    assert (client.done, scene.reply(client).attempt) == ("finished", 2)


def replica_killed_in_mid_stream(scene: Scene) -> None:
    client = scene.running("half")
    victim = scene.serving(client)
    assert victim
    scene.stack.kill(victim)
    scene.finish(client)
    assert (client.done, scene.reply(client).attempt, scene.serving(client)) == ("finished", 2, other(victim))


def successor_killed_during_a_hand_over(scene: Scene) -> None:
    client = scene.running("handed-over")
    leaves = scene.serving(client)
    assert leaves
    scene.stack.leave(leaves)
    scene.until(lambda: scene.resumes(client))
    scene.stack.kill(other(leaves))
    scene.stack.begin(other(leaves))
    scene.finish(client)
    assert client.done == "finished"


def edge_killed_under_two_tabs(scene: Scene) -> None:
    first = scene.running("two-tabs", events=30)
    second = Client("two-tabs.other", replace(first.ask, cuts=(Cut(40, "reset"),)), first.edges)
    second.reply = first.reply
    scene.start(second)
    scene.until(lambda: (second.cursor or 0) > 20)
    scene.stack.kill("edge-0")
    scene.finish(first, second)
    assert (first.done, second.done) == ("finished", "finished")


def intake_killed_between_post_and_accepted(scene: Scene) -> None:
    with scene.stack.held("intake"):
        first = scene.ask("lost-answer")
        scene.until(lambda: scene.posted(first))
        scene.stack.kill("intake")
    second = scene.start(Client("lost-answer.again", first.ask, replace(first.edges, first=1)))
    scene.stack.begin("intake")
    scene.finish(first, second)
    assert first.reply == second.reply and first.done == "finished"


def supervisor_frozen_while_a_replica_dies(scene: Scene) -> None:
    clients = [scene.running(f"unwatched-{n}", text=TEXT * 2, events=5) for n in range(2)]
    spared = {client: scene.serving(client) for client in clients}
    victim = scene.serving(clients[0])
    assert victim
    with scene.stack.held("supervisor"):
        scene.stack.kill(victim)
        scene.pass_by(5.0)
    scene.finish(*clients)
    assert [scene.reply(c).attempt for c in clients] == [1 + (spared[c] == victim) for c in clients]


def settlement_killed_at_the_end_of_replies(scene: Scene) -> None:
    clients = [scene.ask(f"unpaid-{n}", text="short " * (n + 2)) for n in range(5)]
    scene.until(lambda: any(client.done for client in clients))
    scene.stack.kill("settlement")
    scene.stack.begin("settlement")
    scene.finish(*clients)


def broker_frozen_in_mid_stream(scene: Scene) -> None:
    client = scene.running("cold")
    with scene.stack.held("kafka"):
        scene.pass_by(5.0)
    scene.finish(client)
    assert (client.done, scene.reply(client).attempt) == ("finished", 1)


def every_replica_dead_then_one_comes_back(scene: Scene) -> None:
    clients = [scene.running(f"orphan-{n}", events=10) for n in range(2)]
    for name in REPLICAS:
        scene.stack.kill(name)
    clients.append(scene.ask("orphan-late"))
    scene.pass_by(3.0)
    scene.stack.begin(REPLICAS[1])
    scene.finish(*clients)
    assert {client.done for client in clients} == {"finished"}


def stop_at_the_other_edge_without_a_supervisor(scene: Scene) -> None:
    client = scene.running("stopped-elsewhere", text=LONG)
    scene.stack.kill("supervisor")
    assert client.stop(edge=1) == "stopped"
    scene.finish(client)
    assert client.done == "stopped"


def stop_during_a_hand_over(scene: Scene) -> None:
    client = scene.running("stopped-between", text=LONG)
    victim = scene.serving(client)
    assert victim
    with scene.stack.held("router"):
        scene.stack.kill(victim)
        scene.until(lambda: scene.resumes(client))
        assert client.stop(edge=1) == "stopped"
    scene.finish(client)
    assert client.done == "stopped"


def listener_gone_without_a_word(scene: Scene) -> None:
    client = scene.ask("gone", text=LONG, leaves_after=10, leaves_how="reset")
    scene.finish(client)
    scene.until(lambda: scene.ended(client))
    end = scene.reply(client).end
    assert isinstance(end, Stopped) and end.by == "abandoned"


def listener_back_in_the_last_second(scene: Scene) -> None:
    client = scene.ask("back", text=TEXT * 2, cuts=(Cut(10, "reset", ABANDON_AFTER_S - 1),))
    scene.finish(client)
    assert client.done == "finished"


def edge_dead_and_its_listener_never_back(scene: Scene) -> None:
    client = scene.ask("forsaken", text=LONG, leaves_after=10, leaves_how="silent")
    scene.finish(client)
    scene.stack.kill("edge-0")
    scene.until(lambda: scene.ended(client))
    end = scene.reply(client).end
    assert isinstance(end, Stopped) and end.by == "abandoned"


def full_disk_under_the_store(scene: Scene) -> None:
    scene.stack.fill("history")
    client = scene.ask("no-room")
    scene.finish(client)
    assert client.done == "finished"
    scene.until(lambda: "holds what it has read" in scene.stack.missing("history"))


CELLS: tuple[Callable[[Scene], None], ...] = (
    replica_killed_before_its_first_token,
    replica_killed_in_mid_stream,
    successor_killed_during_a_hand_over,
    edge_killed_under_two_tabs,
    intake_killed_between_post_and_accepted,
    supervisor_frozen_while_a_replica_dies,
    settlement_killed_at_the_end_of_replies,
    broker_frozen_in_mid_stream,
    every_replica_dead_then_one_comes_back,
    stop_at_the_other_edge_without_a_supervisor,
    stop_during_a_hand_over,
    listener_gone_without_a_word,
    listener_back_in_the_last_second,
    edge_dead_and_its_listener_never_back,
    full_disk_under_the_store,
)
