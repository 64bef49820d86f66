"""Plans files: what they say, and what is said of those that say it wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.testing import CliRunner

from infra.cli import app
from infra.commands import quotas
from infra.commands.quotas import rows, tell_unserved
from infra.plans import SHIPPED, BadPlans, read_limit, read_plans
from schemas.ids import UserId
from schemas.quota_records import Balance, Limit, LimitSet, Plan
from streams.allowances import TIER_OF_PLAN, check_plan
from tests.unit.streams.staged import ROUTES
from topics.errors import Unavailable
from topics.outputs import Output


def written(folder: Path, text: str) -> Path:
    file = folder / "plans.toml"
    file.write_text(text)
    return file


def test_a_plan_is_a_table_and_each_model_of_it_too(tmp_path: Path) -> None:
    [plan] = read_plans(
        written(
            tmp_path,
            """
            [gold]
            tier = "paid"
            mini = "small"
            cached_percent = 10
            time_zone = "Europe/Berlin"
            [gold.limits."*"]
            requests = ["20/1m", "1_000/day"]
            [gold.limits.large]
            tokens = "5000/5h"
            replies = 2
            """,
        )
    ).plans
    limits = (
        Limit("*", "requests", 20, "1m"),
        Limit("*", "requests", 1000, "day"),
        Limit("large", "tokens", 5000, "5h"),
        Limit("large", "replies", 2),
    )
    assert plan == Plan("gold", "paid", limits, "small", cached_percent=10, time_zone="Europe/Berlin")


def test_the_shipped_file_has_every_plan_that_keys_know_and_can_be_reckoned_with() -> None:
    plans = read_plans(SHIPPED).plans
    assert {plan.name: plan.tier for plan in plans} == TIER_OF_PLAN
    for plan in plans:
        check_plan(plan)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expected a table for each plan"),
        ("[free", "expected a TOML file"),
        ("free = 1", "free=1: expected a table for the plan"),
        ("[free]", "free has no tier: expected paid, free or background"),
        ('[free]\ntier = "gold"', "free: tier 'gold': expected one of paid"),
        ('[free]\ntier = "free"\nmimi = "x"', "free.mimi: expected one of tier, mini"),
        ('[free]\ntier = "free"\ncached_percent = "10"', "free.cached_percent='10': expected an integer"),
        ('[free]\ntier = "free"\ncached_percent = 101', "cached_percent 101: expected 0 to 100"),
        ('[free]\ntier = "free"\ndefault_max_tokens = true', "default_max_tokens=True: expected an integer"),
        ('[free]\ntier = "free"\ndefault_max_tokens = 99999999999999999999', "expected 1 to 1000000000000000"),
        ('[free]\ntier = "free"\ndefault_max_tokens = ' + "9" * 5_000, "expected a TOML file of plans"),
        ('[free]\ntier = "free"\ntime_zone = "Mars"', "time zone 'Mars': expected a name such as"),
        ('[free]\ntier = "free"\nlimits = 5', "free.limits=5: expected a table of models"),
        ('[free]\ntier = "free"\n[free.limits]\nm = 5', "free.limits.'m'=5: expected a table of limits"),
        ('[free]\ntier = "free"\n[free.limits.m]\nwords = "5/1m"', "free.limits.'m'.words='5/1m': expected one of req"),
        ('[free]\ntier = "free"\n[free.limits.m]\ntokens = 5', "tokens=5: expected an amount and a window"),
        ('[free]\ntier = "free"\n[free.limits.m]\ntokens = ["5/1m", "5/week"]', "tokens='5/week': window 'week': exp"),
        ('[free]\ntier = "free"\n[free.limits.m]\nreplies = "5/1m"', "replies='5/1m': expected a number, of replies"),
        ('[free]\ntier = "free"\n[free.limits.m]\nreplies = -1', "replies -1: expected 0 to"),
    ],
)
def test_what_is_wrong_is_told_with_its_place_and_what_was_expected(tmp_path: Path, text: str, told: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(BadPlans) as raised:
        read_plans(file)
    assert str(raised.value).startswith(str(file))
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("tokens=100_000/5h", Limit("*", "tokens", 100_000, "5h")),
        ("replies=3", Limit("*", "replies", 3)),
        ("org/model:1b:requests=20/1m", Limit("org/model:1b", "requests", 20, "1m")),
    ],
)
def test_a_limit_is_one_word(text: str, limit: Limit) -> None:
    assert read_limit(text) == limit


@pytest.mark.parametrize("text", ["", "tokens", "tokens=5", "tokens=5/", "tokens=-5/1m", "replies=3/1m", "words=3/1m"])
def test_a_word_that_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(BadPlans, match="expected"):
        read_limit(text)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("plans", "apply", "/no/such/file"), "/no/such/file: expected a TOML file"),
        (("limits", "set", "alice"), "nothing to set"),
        (("limits", "set", "alice", "tokens=5"), "tokens=5: expected an amount and a window"),
        (("limits", "set", "alice", "--time-zone", "Mars"), "time zone 'Mars'"),
        (("limits", "set", "a" * 513, "replies=1"), "user has 513 bytes, expected 1 to 512"),
        (("limits", "set", "alice", f"{'m' * 513}:replies=1"), "model has 513 bytes"),
        (("limits", "clear", ""), "user has 0 bytes"),
        (("usage", "a" * 513), "user has 513 bytes"),
        (("usage", "alice", "--plan", "p" * 513), "plan has 513 bytes"),
        (("keys", "add", "a" * 513), "user has 513 bytes"),
    ],
)
def test_a_command_that_cannot_be_done_says_why_before_it_asks_for_a_cluster(
    arguments: tuple[str, ...], told: str
) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert told in done.stderr


@dataclass
class Asked:
    """A cluster whose intake serves two models."""

    routes = ROUTES
    written: list[object] = field(default_factory=list)

    def write(self, outputs: Iterable[Output]) -> None:
        self.written += [output.event for output in outputs]

    def everywhere(self, event: object) -> list[Output]:
        return [self.routes.message(UserId(""), event)]

    def models(self) -> tuple[str, ...]:
        return "large", "small"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    monkeypatch.setattr(quotas, "connected", lambda: asked)
    return asked


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("lagre:requests=5/1m", "laneway: not served: lagre; served: large, small\n"),
        ("large:requests=5/1m", ""),
        ("requests=5/1m", ""),
    ],
)
def test_a_limit_of_a_model_that_is_not_served_is_set_and_told(asked: Asked, limit: str, told: str) -> None:
    done = CliRunner().invoke(app, ["limits", "set", "alice", limit])
    assert (done.exit_code, done.stderr) == (0, told)
    assert asked.written == [LimitSet(UserId("alice"), (read_limit(limit),))]


def test_the_models_of_plans_that_are_not_served_are_told(asked: Asked, tmp_path: Path) -> None:
    text = '[free]\ntier = "free"\nmini = "smal"\n[free.limits."*"]\nreplies = 2\n[free.limits.lagre]\nreplies = 1'
    done = CliRunner().invoke(app, ["plans", "apply", str(written(tmp_path, text))])
    assert (done.exit_code, len(asked.written)) == (0, 1)
    assert done.stderr == "laneway: not served: lagre, smal; served: large, small\n"


def test_where_no_intake_answers_it_is_told_that_nobody_knows(capsys: pytest.CaptureFixture[str]) -> None:
    def away() -> tuple[str, ...]:
        raise Unavailable("no intake has answered in 10 s")

    tell_unserved(["large", "*"], away)
    assert capsys.readouterr().err == "laneway: not known to be served: large: no intake has answered in 10 s\n"
    tell_unserved(["*", ""], away)
    tell_unserved(["large"], lambda: ())  # an intake of before models were told
    assert capsys.readouterr().err == ""


def test_the_shipped_plans_can_be_looked_at() -> None:
    done = CliRunner().invoke(app, ["plans", "show", str(SHIPPED)])
    assert (done.exit_code, done.stderr) == (0, "")
    assert "free: tier free, past a limit mini answers" in done.stdout


def test_a_balance_is_shown_with_the_time_of_its_zone() -> None:
    day = Balance("m", "tokens", "day", 100, 20, 90, 1_700_000_000_000)
    [row] = rows([day], "Asia/Tokyo")
    assert row == ("m", "tokens=100/day", "20", "90", "0", "2023-11-15 07:13:20")
