# SPDX-License-Identifier: Apache-2.0
"""Options that are settings: each stands in the model alone, and every other setting is given by --set."""

import json
import re

import pytest
import typer.main

from edgefirst_ros.cli.app import VERBS, app
from edgefirst_ros.cli.options import list_settings
from edgefirst_ros.config import Settings
from edgefirst_ros.config.load import list_setting_fields, load
from edgefirst_ros.errors import UsageError

SMALL = {"seconds": 1, "size": (160, 96), "cube_shape": (1, 16, 2, 16), "lidar_points": 100}


def configuration(run, dataset):
    return json.loads(run("info", dataset, "--json").stdout)["metadata"]["configuration"]


@pytest.mark.parametrize("name", typer.main.get_command(app).commands)
def test_every_verb_has_the_short_help(call, name):
    done = call(name, "-h")
    assert done.exit_code == 0
    assert done.stdout == call(name, "--help").stdout
    assert "-h, --help" in done.stdout


@pytest.mark.parametrize("name", VERBS)
def test_the_list_of_verbs_has_the_first_line_of_each(name):
    command = typer.main.get_command(app).commands[name]
    assert (VERBS[name].help, command.hidden) == (command.get_short_help_str(200), False)


@pytest.mark.parametrize(
    ("verb", "uses", "some", "others"),
    [
        (["convert"], "convert", {"--start", "--rate", "--jobs", "--layout", "--schema", "--group"}, set()),
        (["replay"], "convert", {"--start", "--rate", "--jobs", "--layout", "--schema", "--group"}, set()),
        (["capture"], "capture", {"--rate", "--keyframes", "--reference-topic", "--max-width"}, {"--start", "--end"}),
        (["fleet", "convert"], "fleet", {"--start", "--rate", "--split"}, {"--jobs", "--layout", "--stable"}),
        (["report"], "show", {"--start", "--rate"}, {"--jobs", "--layout", "--jpeg-quality", "--split", "--schema"}),
        (["merge"], "group", {"--split", "--group", "--stable"}, {"--rate", "--start"}),
        (["info"], "read", set(), {"--rate", "--split"}),
    ],
)
def test_a_verb_has_the_options_of_the_settings_that_it_uses(run, verb, uses, some, others):
    found = run(*verb, "--help").stdout
    flags, shown = set(re.findall(r"--[a-z-]+", found)), " ".join(found.split())
    own = [field for field in list_settings(uses).values() if field.schema["option"] is not None]
    assert some <= {field.flag for field in own} <= flags
    assert not flags & others
    assert all(field.schema["description"] in shown for field in own)


def test_help_of_an_option_is_that_of_its_setting(run):
    shown = " ".join(run("convert", "--help").stdout.split())
    assert "Largest time difference of a sensor's message to the frame, s (default: 0.1)." in shown
    assert "--layout zip|directory" in shown
    assert "--schema 2025.10|2026.04|2026.10" in shown


def test_any_setting_is_given_by_set(run, recording):
    given = {
        "streams.lidar.points.tolerance": "0.06",
        "limits.cloud_points": "999999",
        "masks": "false",
        "label_map": "car=vehicle,person=",
        "split": "train=0.5,val=0.5",
        "gps_topic": "/gps",
        "rate": "5",
    }
    arguments = [word for name, text in given.items() for word in ("--set", f"{name}={text}")]
    assert run("convert", recording(**SMALL), "-o", "out", "--name", "a", *arguments).returncode == 0
    chosen = configuration(run, "out/a")
    assert chosen["streams"] == {"lidar.points": {"tolerance": 0.06, "offset": 0.0, "reuse": True}}
    assert chosen["limits"]["cloud_points"] == 999999
    assert chosen["label_map"] == {"car": "vehicle", "person": ""}
    assert chosen["split"] == {"train": 0.5, "val": 0.5}
    assert [chosen[name] for name in ("masks", "gps_topic", "rate")] == [False, "/gps", 5.0]


def test_set_goes_before_the_file_and_the_last_one_counts(run, recording, tmp_path):
    (tmp_path / "some.yaml").write_text("keyframes: true\nstreams: {radar.cube: {offset: 0.01}}\n")
    arguments = ["--config", "some.yaml", "--set", "keyframes=false", "--rate", "5"]
    arguments += ["--set", "streams.radar.cube.reuse=no", "--set", "jpeg_quality=70", "--set", "jpeg_quality=80"]
    done = run("convert", recording(**SMALL), "-o", "out", "--name", "a", *arguments)
    assert done.returncode == 0, done.stderr
    chosen = configuration(run, "out/a")
    assert chosen["streams"] == {"radar.cube": {"tolerance": None, "offset": 0.01, "reuse": False}}
    assert [chosen[name] for name in ("keyframes", "rate", "jpeg_quality")] == [False, 5.0, 80]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["demo", "--seconds", "0"], "--seconds: expected a number at least 1, at most 3600, got '0'"),
        (["demo", "--seconds=x"], "--seconds: expected a number at least 1, at most 3600, got 'x'"),
        (["fleet", "convert", "a", "--workers", "1.5"], "--workers: expected a whole number at least 1, at most 1024"),
        (["view", "a", "--frame", "-1"], "--frame: expected a number at least 0, got '-1'"),
    ],
)
def test_a_number_out_of_its_range_is_refused_as_one_of_a_setting(call, arguments, says):
    done = call(*arguments)
    assert isinstance(done.exception, UsageError)
    assert says in str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--set", "tolerence=0.1"], "unknown setting 'tolerence'; did you mean 'tolerance'?"),
        (["--set", "streams.lidar.points.ofset=1"], "did you mean 'streams.lidar.points.offset'?"),
        (["--set", "zzz=1"], "unknown setting 'zzz'; the page Settings of the documentation lists them"),
        (["--set", "outt=1"], "unknown setting 'outt'; the page Settings of the documentation lists them"),
        (
            ["--set", "streams.radar=1"],
            "unknown setting 'streams.radar'; set one that begins so, such as streams.radar.",
        ),
        (["--set", "rate"], "--set: expected NAME=VALUE, got 'rate'"),
        (["--start", "2", "--end", "1"], "--start is 2.0 and --end 1.0: no sample is between them"),
        (["--end", "0"], "--start is 0.0 and --end 0.0: no sample is between them"),
        (["--stable"], "--stable needs --split, the shares of the groups"),
        (["--sensors", "lidar.points", "--keyframes"], "--keyframes needs camera among the --sensors"),
        (
            ["--rig", "{camera: /a}", "--reference-topic", "/b"],
            "--reference-topic and camera of the rig cannot be combined",
        ),
        (["--set", "split_gap=9", "--set", "split_block=1"], "--set split_gap is 9 and --set split_block 1: no sample"),
        (["--set", "rate=5", "--rate", "5"], "--rate and --set rate cannot be combined"),
        (["--set", "schema_version=2026.10", "--schema", "2026.04"], "--schema and --set schema_version cannot"),
        (["--set", "rate=fast"], "--rate: expected a number above 0, at most 1000000 Hz, got 'fast'"),
        (["--max-width", "9"], "--max-width: expected a whole number at least 16, at most 65535 pixels, got '9'"),
        (["--rate", "5", "--keyframes"], "--rate and --keyframes cannot be combined"),
        (["--set", "keyframes=true", "--rate", "5"], "--rate and --set keyframes cannot be combined"),
        (["--rig", ""], "--rig: expected text such as {camera: /image_raw}, got ''; --set rig= unsets it"),
        (["--reference-topic", ""], "--reference-topic: expected text, got ''"),
        (["--sensors", ""], "--sensors: expected a list of texts such as [A, B], got ''"),
        (["--rate="], "--rate: expected a number above 0, at most 1000000 Hz, got ''"),
        (["--masks"], "no option --masks; use the setting: --set masks=..."),
        (["--fps", "5"], "no option --fps; use --rate"),
        (["--topic", "/camera"], "no option --topic; use --reference-topic"),
        (["--from", "1"], "no option --from; use --start"),
        (["--to", "2"], "no option --to; use --end or --out"),
        (["--force"], "no option --force; use --overwrite"),
        (["--train", "0.8"], "no option --train; use --split"),
        (["--max-gap=3"], "--set max_gap=..."),
        (["--schema-version", "2026.10"], "no option --schema-version; use --schema"),
        (["--limits", "7"], "--set limits.chunk_bytes=..."),
        (["--rate"], "--rate"),
        (["--nonsense"], "No such option: --nonsense"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_is_wrong_gives_exit_code_2(run, recording, tmp_path, arguments, says):
    done = run("convert", recording(**SMALL), "-o", "out", *arguments)
    assert done.returncode == 2
    assert re.sub(r"\s+", " ", done.stderr).find(says) >= 0, done.stderr
    assert not (tmp_path / "out").exists()


# ---- examples in help --------------------------------------------------------------------------
EXAMPLE = re.compile(r"such as ([^ ;]+[^ ;.,])")


def examples():
    """The examples of help: verb, option, value."""
    for name, command in typer.main.get_command(app).commands.items():
        for verb, one in getattr(command, "commands", {name: command}).items():
            for option in one.get_params(typer.Context(one)):
                for text in (getattr(option, "help", None) or "", option.metavar or ""):
                    for value in EXAMPLE.findall(text) + re.findall(r"^[\w.]+=[\d.]+(?:,[\w.]+=[\d.]+)*$", text):
                        yield name, verb, option.opts[-1], value


def test_examples_in_help_are_taken_by_convert(run, recording, tmp_path):
    """`--split train=0.8,val=0.2`: what help shows for a setting is typed as it is shown."""
    for name in ("night.mcap", "day.mcap"):
        (tmp_path / name).symlink_to(recording(**SMALL, seed=len(name)))
    shown = {(option, value) for name, verb, option, value in examples() if name in ("convert", "split", "merge")}
    assert {option for option, _ in shown} >= {"--split", "--group", "--set"}
    for option, value in sorted(shown):
        done = run("convert", "night.mcap", "day.mcap", "-o", "out", "--name", "both", "--overwrite", option, value)
        assert done.returncode == 0, f"{option} {value}: {done.stderr}"


def test_descriptions_of_settings_show_what_options_take():
    for name, field in list_setting_fields(Settings).items():
        shown = EXAMPLE.findall(field.schema["description"]) + list(field.schema.get("examples", ()))
        for value in shown:
            needed = {"end": {}, "start": {}}.get(name, {})
            load(None, texts={name: value.rstrip(","), **needed})


@pytest.mark.parametrize("verb", [["convert", "-o", "out"], ["report"], ["view", "--save", "x.rrd"]])
def test_a_message_names_the_option_of_a_setting(call, recording, verb):
    if verb[0] in ("report", "view"):
        pytest.importorskip({"report": "plotly", "view": "rerun"}[verb[0]])
    done = call(verb[0], recording(**SMALL, topics={"gps", "lidar/points"}), *verb[1:])
    assert done.exit_code == 1
    assert str(done.exception).endswith("to make samples of another topic, set reference_topic (--reference-topic)")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--set", "prefer=model"], "set --rate too, or --require model"),
        (["--sensors", "lidar.depth"], "set lidar_images to True (--set lidar_images=True)"),
    ],
)
def test_a_message_names_the_option_of_another_setting_that_is_needed(call, recording, options, expected):
    done = call("convert", recording(**SMALL), "-o", "out", *options)
    assert isinstance(done.exception, UsageError)
    assert expected in str(done.exception)
