# SPDX-License-Identifier: Apache-2.0
"""Labels made elsewhere: matched, joined, replaced, counted; files that are made to harm; the command."""

import json
import os
import shutil
import subprocess

import handmade_dataset as made
import polars as pl
import pytest
from labelled_dataset import OTHER, boxes, write

from edgefirst_ros import Dataset
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.export.labels.labelling import label

BOX = [8, 6, 4, 3]


def coco(path, images=(), annotations=(), categories=({"id": 0, "name": "car"},)):
    content = {"images": list(images), "annotations": list(annotations), "categories": list(categories)}
    path.write_text(json.dumps(content))
    return path


def image(number, name, **further):
    return {"id": number, "file_name": name, "width": 32, "height": 24, **further}


def box(image_id, **further):
    return {"image_id": image_id, "category_id": 0, "bbox": BOX, **further}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write(tmp_path_factory.mktemp("written"), boxes(12).drop("object_id", "box2d_score")).paths


@pytest.fixture
def dataset(tmp_path, written):
    """Boxes of which the labels can hold everything."""
    shutil.copytree(written.out, tmp_path / "data")
    return Dataset(tmp_path / "data" / written.container.name)


@pytest.mark.parametrize(
    "name",
    [
        f"{OTHER}_004.jpeg",
        f"{OTHER}_4.png",
        f"{OTHER}_004.camera.jpeg",
        f"train/2026/{OTHER}_004.jpg",
        f"C:\\labels\\{OTHER}_004.JPG",
        f"{OTHER}_004",
        f"images/1b2c3d4e-{OTHER}_004.jpeg",  # Label Studio
        f"{OTHER}_004_jpeg.rf.0a1b2c3d4e5f60718293a4b5c6d7e8f9.jpg",  # Roboflow
    ],
)
def test_pictures_are_matched_by_their_names(tmp_path, dataset, name):
    done = label(dataset, "coco", coco(tmp_path / "a.json", [image(1, name)], [box(1)]), replace=True)
    assert (done.exit_code, done.pictures, done.annotations) == (0, 1, 1)
    assert dataset.sample(OTHER, 4).annotations["box2d"].to_list() == [[0.3125, 0.3125, 0.125, 0.125]]


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    "name",
    [f"{OTHER}_004.{kind}" for kind in ("camera-left.jpeg", "camera-left", "camera_left.JPG", "lidar.png")]
    + [f"1b2c3d4e-{OTHER}_004.camera-left.jpeg"],
)
def test_labels_of_the_picture_of_another_sensor_are_lost_and_not_the_cameras(tmp_path, dataset, name, first):
    """Members of a rig's dataset are labelled as they are named."""
    own, other = image(1, f"{OTHER}_004.camera.jpeg"), image(2, name)
    file = coco(tmp_path / "a.json", [other, own] if first else [own, other], [box(1), box(2, bbox=[1, 1, 2, 2])])
    done = label(dataset, "coco", file, replace=True)
    assert (done.exit_code, done.pictures, done.annotations, done.unmatched) == (3, 1, 1, [name])
    assert done.lost == {"annotations of pictures that are not samples": 1}
    assert dataset.sample(OTHER, 4).annotations["box2d"].to_list() == [[0.3125, 0.3125, 0.125, 0.125]]
    with pytest.raises(DatasetError, match="none of its 1 pictures is of the camera of a sample"):
        label(dataset, "coco", coco(tmp_path / "b.json", [other], [box(2)]), replace=True)


@pytest.mark.parametrize(
    "file",
    ["annotations/instances_default.json", "result.json", "labels.json", "train/_annotations.coco.json"],
    ids=["CVAT", "Label Studio", "FiftyOne", "Roboflow"],
)
def test_coco_is_found_where_other_tools_write_it(tmp_path, dataset, file):
    path = tmp_path / "theirs" / file
    path.parent.mkdir(parents=True)
    coco(path, [image(1, f"{OTHER}_004.jpeg")], [box(1)])
    assert label(dataset, "coco", tmp_path / "theirs", replace=True).annotations == 1


@pytest.mark.parametrize(
    ("names", "text", "folder", "picture"),
    [
        ("obj.names", "car\n", "obj_train_data", f"{OTHER}_004"),
        ("classes.txt", "car\n", "labels", f"1b2c3d4e-{OTHER}_004"),
        ("dataset.yaml", "names:\n  0: car\ntrain: ./images/train/\n", "labels/train", f"{OTHER}_004"),
        ("data.yaml", "names: ['car']\nnc: 1\nroboflow: {license: x}\n", "train/labels", f"{OTHER}_004_jpeg.rf.0a1b2c"),
    ],
    ids=["CVAT", "Label Studio", "FiftyOne", "Roboflow"],
)
def test_yolo_is_found_where_other_tools_write_it(tmp_path, dataset, names, text, folder, picture):
    (tmp_path / "theirs" / folder).mkdir(parents=True)
    (tmp_path / "theirs" / names).write_text(text)
    (tmp_path / "theirs" / folder / f"{picture}.txt").write_text("0 0.5 0.5 0.25 0.25\n")
    assert label(dataset, "yolo", tmp_path / "theirs", replace=True).annotations == 1
    assert dataset.sample(OTHER, 4).annotations["box2d"].to_list() == [[0.5, 0.5, 0.25, 0.25]]


def test_labels_in_a_linked_folder_are_not_read(tmp_path, dataset):
    (tmp_path / "elsewhere").mkdir()
    coco(tmp_path / "elsewhere" / "_annotations.coco.json", [image(1, f"{OTHER}_004.jpeg")], [box(1)])
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "train").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DatasetError, match="expected one of the files"):
        label(dataset, "coco", tmp_path / "theirs", replace=True)


def test_folders_without_labels_name_the_files_that_are_looked_for(tmp_path, dataset):
    with pytest.raises(DatasetError, match=r"expected one of the files instances\.json, .*, or the file itself"):
        label(dataset, "coco", tmp_path, replace=True)
    with pytest.raises(
        DatasetError, match=r"expected one of the files data\.yaml, dataset\.yaml, classes\.txt, obj\.names"
    ):
        label(dataset, "yolo", tmp_path, replace=True)
    (tmp_path / "classes.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DatasetError, match=r"classes\.txt: cannot be read as UTF-8"):
        label(dataset, "yolo", tmp_path, replace=True)


def test_frame_numbers_are_enough_in_one_sequence(tmp_path):
    dataset = Dataset(made.write(tmp_path, made.good()))
    file = coco(tmp_path / "a.json", [image(1, "000007.jpg")], [box(1)], [{"id": 0, "name": "person"}])
    done = label(dataset, "coco", file, join=True)
    assert (done.pictures, dataset.sample(made.SEQUENCE, 7).annotations.height) == (1, 1)
    with pytest.raises(DatasetError, match="none of its 1 pictures is of the camera of a sample"):
        label(dataset, "coco", coco(tmp_path / "b.json", [image(1, "000007.camera-left.jpg")], [box(1)]), replace=True)


def test_a_folder_of_one_dataset_is_that_and_of_several_names_them(tmp_path, dataset):
    file = coco(tmp_path / "a.json", [image(1, f"{OTHER}_004.jpeg")], [box(1)])
    assert label(dataset.paths.container.parent, "coco", file, replace=True).annotations == 1
    second = made.write(tmp_path / "data" / "second", made.good())
    before = dataset.paths.arrow.read_bytes()
    with pytest.raises(UsageError, match=f"one dataset at a time; name one of .*data.zip, {second}"):
        label(dataset.paths.container.parent, "coco", file, replace=True)
    assert dataset.paths.arrow.read_bytes() == before


def test_rows_are_replaced_or_joined_where_labels_name_the_sample(tmp_path, dataset):
    file = coco(tmp_path / "a.json", [image(1, f"{OTHER}_004.jpeg")], [box(1), box(1)])
    before = dataset.annotations
    with pytest.raises(UsageError, match=r"already has 12 annotations.*--replace.*--join"):
        label(dataset, "coco", file)
    assert Dataset(dataset.paths.container).annotations.equals(before)
    done = label(dataset, "coco", file, join=True)
    assert (done.annotations, done.replaced, done.kept) == (2, 0, 12)
    done = label(dataset, "coco", file, replace=True)
    assert (done.annotations, done.replaced, done.kept) == (2, 4, 10)
    assert dataset.annotations.drop_nulls("label").height == 12
    assert done.notes == ["unchanged, because the labels do not name them: 5 samples"]


@pytest.mark.parametrize("mode", ["join", "replace"])
def test_labels_numbered_otherwise_than_rows_that_stay_are_refused_or_renumbered(tmp_path, dataset, mode):
    categories = [
        {"id": 0, "name": "person"},
        {"id": 1, "name": "sign"},
        {"id": 7, "name": "car"},
        {"id": 9, "name": "bus"},
    ]
    rows = [box(1, category_id=of["id"]) for of in categories]
    images = [image(1, f"{OTHER}_004.jpeg"), image(2, f"{OTHER}_007.jpeg")]
    file = coco(tmp_path / "a.json", images, rows, categories)
    before = dataset.paths.arrow.read_bytes()
    with pytest.raises(
        UsageError, match=r"label_index 0 is 'car' and 'person'; .*'car' has the label_index 0 and 7.*--renumber"
    ):
        label(dataset, "coco", file, **{mode: True})
    assert dataset.paths.arrow.read_bytes() == before
    label(dataset, "coco", file, **{mode: True}, renumber=True)
    pairs = dataset.annotations.select("label", "label_index").drop_nulls().cast({"label": str}).unique()
    assert dict(pairs.rows()) == {"car": 0, "person": 1, "bus": 9, "sign": 10}
    known = dataset.metadata["category_metadata"]
    assert {name: of["id"] for name, of in known.items()} == {"car": 0, "person": 1, "bus": 9, "sign": 10}
    absent = dataset.sample(OTHER, 7).annotations["neg_label_indices"].to_list()
    assert absent == ([] if mode == "replace" else [None, None])  # with rows that stay nothing is known to be absent
    if mode == "replace":
        rows = dataset.annotations.filter((dataset.annotations["name"] == OTHER) & (dataset.annotations["frame"] == 7))
        assert rows["neg_label_indices"].to_list() == [[0, 1, 9, 10]]


def test_none_of_the_pictures_is_an_error_that_shows_both(tmp_path, dataset):
    before = dataset.paths.arrow.read_bytes()
    with pytest.raises(
        DatasetError, match=f"none of its 1 pictures is of the camera of a sample.*'holiday.jpg'; known: .*{OTHER}_004"
    ):
        label(dataset, "coco", coco(tmp_path / "a.json", [image(1, "holiday.jpg")], [box(1)]), replace=True)
    assert dataset.paths.arrow.read_bytes() == before


GOOD = image(1, f"{OTHER}_004.jpeg")
NAN, HUGE = float("nan"), 10**400
MASK = {"size": [24, 32], "counts": [768]}


@pytest.mark.parametrize(
    ("images", "annotations", "lost"),
    [
        ([], [box(1, bbox=[1, 2, NAN, 4])], ["annotations without", "boxes that are"]),
        ([], [box(1, bbox=[1, 2, 1e308, 4])], ["annotations without"]),
        ([], [box(1, bbox=[1, 2, HUGE, 4])], ["annotations without", "boxes that are"]),
        ([], [box(1, bbox=[1, 2, -3, 4])], ["annotations without", "boxes that are"]),
        ([], [box(1, bbox="wide")], ["annotations without", "boxes that are"]),
        ([], [box(1, bbox=[True] * 4)], ["annotations without", "boxes that are"]),
        ([], [box(1, category_id=5)], ["annotations of categories"]),
        ([], [box(1, category_id=[0])], ["annotations of categories"]),
        ([], [box(77)], ["annotations of images"]),
        ([], [box([1])], ["annotations without an image"]),
        ([], [3, None, "x"], ["annotations without an image"]),
        ([3, {"id": 5}, {"id": [], "file_name": "x"}], [], ["images without"]),
        ([image(2, f"{OTHER}_004.png")], [], ["pictures of a sample"]),
        ([image(2, "other.png")], [box(2)], ["annotations of pictures"]),
        (
            [image(2, "other.png")],
            [box(2, segmentation={"size": [24, 32], "counts": [768]})],
            ["annotations of pictures"],
        ),
        ([], [box(1, segmentation=[[1, 2, 3]])], ["rings that are"]),
        ([], [box(1, segmentation=[[1, 2, 3, 4, 5, NAN]])], ["rings that are"]),
        ([], [box(1, segmentation=[[1e300, 2, 3, 4, 5, 6]])], []),
        ([], [box(1, segmentation={"size": [24, 32], "counts": [1, 2]})], ["masks whose runs"]),
        ([], [box(1, segmentation={"size": [24, 32], "counts": [-1, 769]})], ["masks whose runs"]),
        ([], [box(1, segmentation={"size": [24, 32], "counts": [HUGE]})], ["masks whose runs"]),
        ([], [box(1, segmentation={"size": [24, 32], "counts": "\u0001\u00e9"})], ["masks whose runs"]),
        ([], [box(1, segmentation={"size": [1 << 30, 1 << 30], "counts": [1 << 60]})], ["masks of another size"]),
        ([], [box(1, score=2)], ["score outside"]),
        ([], [box(1, score="high")], ["score outside"]),
        ([], [box(1, box3d=[1, 2])], ["box3d"]),
        ([], [box(1, deep={"a": [[[]]]})], ["key "]),
        ([], [box(1, number=1), box(1, number="one")], ["key "]),
        ([], [box(1, number=1 << 70)], ["key "]),
        ([], [box(1, number=1 << 63)], ["key "]),  # beyond int64
        ([], [box(1, number=(1 << 63) - 1)], []),
        ([], [box(1, number=-(1 << 63))], []),
        *(([], [box(1, **{key: 1})], ["key "]) for key in ("\ud800", "a\0b", "\x1b[31m", "x" * 300)),
        ([], [box(1, name="drive", frame=4)], []),
    ],
)
def test_what_is_not_as_the_form_says_is_counted(tmp_path, dataset, images, annotations, lost):
    file = coco(tmp_path / "a.json", [GOOD, *images], [box(1), *annotations])
    done = label(dataset, "coco", file, replace=True)
    found = sorted([*done.lost, *(f"key {name}" for name in done.keys)])
    assert len(found) == len(lost)
    assert all(said.startswith(wanted) for said, wanted in zip(found, sorted(lost), strict=True)), found
    number = {"pictures of a sample": 1}.get(*lost, max(len(images), len(annotations))) if len(lost) == 1 else 1
    assert set(done.lost.values()) <= {number}
    assert done.annotations >= 1
    assert done.exit_code == (3 if done.lost else 0)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b"{}", b"null", b"\xff\xfe", b"{" * 100_000, b"[" * 1_000_000, b'{"images": 3}',
        b'{"images": [], "annotations": [], "categories": [3]}',
        b'{"images": [], "annotations": [], "categories": [{"id": 1}]}',
        b'{"images": [], "annotations": [], "categories": [{"id": 1.5, "name": "a"}]}',
        b'{"images": [], "annotations": [], "categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "a"}]}',
        b'{"images": [], "annotations": [], "categories": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]}',
        b'{"images": [], "annotations": [], "categories": []}',
        b'{"images": [{"id": 1' + b"0" * 5000 + b"}]}",
    ],
)  # fmt: skip
def test_files_that_are_no_coco_are_errors(tmp_path, dataset, text):
    file = tmp_path / "a.json"
    file.write_bytes(text)
    with pytest.raises(DatasetError):
        label(dataset, "coco", file, replace=True)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"names:", b"names: 3", b"names: {a: b}", b"names: [a, a]", b"\xff", b"[" * 2000, b"names: &a [*a]",
        b"names: [x]" + b" " * (1 << 18), b"names: !!python/object/apply:os.system [id]", b"names: {-1: a}",
        b"names: {}", b"names: []",
        b"a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b]\nnames: [*c,*c,*c,*c,*c,*c]",
    ],
)  # fmt: skip
def test_data_files_that_are_no_yolo_are_errors(tmp_path, dataset, text):
    (tmp_path / "yolo" / "labels").mkdir(parents=True)
    (tmp_path / "yolo" / "labels" / f"{OTHER}_004.txt").write_text("0 0.5 0.5 0.5 0.5")
    (tmp_path / "yolo" / "data.yaml").write_bytes(text)
    with pytest.raises(DatasetError):
        label(dataset, "yolo", tmp_path / "yolo", replace=True)


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        (b"0", "neither a box"),
        (b"0 0.5 0.5", "neither a box"),
        (b"0 0.5 0.5 0.5", "neither a box"),
        (b"0 nan 0.5 0.5 0.5", "not finite"),
        (b"0 1e40 0.5 0.5 0.5", "not finite"),
        (b"0 0.5 0.5 -0.5 0.5", "neither a box"),
        (b"1 0.5 0.5 0.5 0.5", "no name"),
        (b"0.5 0.5 0.5 0.5 0.5", "no name"),
        (b"nan 0.5 0.5 0.5 0.5", "no name"),
        (b"1e300 0.5 0.5 0.5 0.5", "no name"),
        (b"car 0.5 0.5 0.5 0.5", "not numbers"),
        (b"0 0.1 0.1 0.2 0.1 0.2 0.2 0.3", "neither a box"),
        (b"0 0.5 0.5 \xff", "not text"),
    ],
)
def test_lines_that_are_none_are_counted(tmp_path, dataset, text, lost):
    folder = tmp_path / "yolo" / "labels" / "all"
    folder.mkdir(parents=True)
    (tmp_path / "yolo" / "data.yaml").write_text("names: [car]")
    (folder / f"{OTHER}_004.txt").write_bytes(text)
    (folder / f"{OTHER}_003.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    done = label(dataset, "yolo", tmp_path / "yolo", replace=True)
    ((reason, number),) = done.lost.items()
    assert (lost in reason, number, done.annotations) == (True, 1, 1)


def test_links_pipes_and_missing_files_are_refused_by_name(tmp_path, dataset):
    good = coco(tmp_path / "good.json", [GOOD], [box(1)])
    (tmp_path / "link.json").symlink_to(good)
    os.mkfifo(tmp_path / "pipe.json")
    yolo = tmp_path / "yolo"
    (yolo / "labels").mkdir(parents=True)
    (yolo / "data.yaml").write_text("names: [car]")
    os.mkfifo(yolo / "labels" / f"{OTHER}_004.txt")
    for form, path in (
        ("coco", "link.json"),
        ("coco", "pipe.json"),
        ("coco", "none.json"),
        ("yolo", "yolo"),
        ("coco", "yolo"),
    ):
        with pytest.raises(DatasetError, match=path.partition(".")[0]):
            label(dataset, form, tmp_path / path, replace=True)
    (yolo / "labels" / f"{OTHER}_004.txt").unlink()
    (tmp_path / "coco.json").write_text("{}")
    with pytest.raises(DatasetError, match=r"coco.json: expected one of the files data.yaml, "):
        label(dataset, "yolo", tmp_path / "coco.json", replace=True)
    with pytest.raises(DatasetError, match=r"holds no files labels/\*\.txt"):
        label(dataset, "yolo", yolo, replace=True)
    with pytest.raises(UsageError, match=r"unknown form of labels 'voc'; known: coco, yolo"):
        label(dataset, "voc", good)


def test_the_command(tmp_path, dataset, command):
    def run(*arguments):
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path)
        assert "Traceback" not in done.stdout + done.stderr
        return done

    path = os.fspath(dataset.paths.container)
    done = run("export", path, "--to", "coco", "-o", "coco", "--pictures", "none")
    assert done.returncode == 0, done.stderr
    done = run("label", path, "coco", "--from", "coco")
    assert (done.returncode, "--replace" in done.stderr) == (2, True)
    done = run("label", path, "coco", "--from", "coco", "--replace")
    assert (done.returncode, "imported 12 annotations" in done.stdout) == (0, True), done.stderr
    done = run("label", path, "coco/instances.json", "--from", "coco", "--join", "--json")
    assert json.loads(done.stdout)["kept"] == 12
    done = run("label", path, "coco", "--from", "voc", "--replace")
    assert (done.returncode, "known: coco, yolo" in done.stderr) == (2, True)
    done = run("import", "coco", "--from", "coco", "-o", "again")
    assert (done.returncode, "edgefirst-ros label" in done.stderr) == (2, True)
    done = run("export", path, "--to", "yolo", "-o", "yolo", "--by-group")
    assert (done.returncode, "it is one of coco" in done.stderr) == (2, True)


def test_replace_and_join_exclude_each_other(tmp_path, dataset):
    with pytest.raises(UsageError, match="--replace and --join cannot be combined"):
        label(dataset, "coco", coco(tmp_path / "a.json"), replace=True, join=True)


def test_values_that_do_not_fit_a_column_of_the_dataset_change_nothing(tmp_path, dataset):
    rows = [box(1, minutes=3)]
    label(dataset, "coco", coco(tmp_path / "a.json", [image(1, f"{OTHER}_004.jpeg")], rows), join=True)
    before = dataset.paths.arrow.read_bytes()
    rows = [box(1, minutes="three")]
    with pytest.raises(DatasetError, match="the labels do not fit the columns of the dataset"):
        label(dataset, "coco", coco(tmp_path / "b.json", [image(1, f"{OTHER}_004.jpeg")], rows), join=True)
    assert dataset.paths.arrow.read_bytes() == before


def test_whole_numbers_and_others_under_one_key_are_one_column(tmp_path, dataset):
    rows = [box(1, minutes=3), box(1, minutes=0.5), box(1, minutes=-1)]
    label(dataset, "coco", coco(tmp_path / "a.json", [image(1, f"{OTHER}_004.jpeg")], rows), replace=True)
    assert dataset.annotations["minutes"].drop_nulls().to_list() == [3.0, 0.5, -1.0]


def test_boxes_in_space_come_along(tmp_path, dataset):
    rows = [box(1, box3d=[1, 2, 3.5, 4, 2, 1]), box(1, box3d=[1, 2])]
    done = label(dataset, "coco", coco(tmp_path / "a.json", [image(1, f"{OTHER}_004.jpeg")], rows), replace=True)
    assert [list(one) for one in dataset.annotations["box3d"].drop_nulls()] == [[1, 2, 3.5, 4, 2, 1]]
    assert done.lost["box3d that is not six finite numbers"] == 1


def test_more_pixels_of_masks_than_a_file_can_mean_are_refused(tmp_path, dataset, monkeypatch):
    monkeypatch.setattr("edgefirst_ros.export.labels.coco.FREE", 32 * 24)
    monkeypatch.setattr("edgefirst_ros.export.labels.coco.PIXELS", 1)
    rows = [box(1, segmentation={"size": [24, 32], "counts": [32 * 24]})] * 2
    with pytest.raises(DatasetError, match=r"a\.json: more pixels of masks come out of it than of any drive"):
        label(dataset, "coco", coco(tmp_path / "a.json", [image(1, f"{OTHER}_004.jpeg")], rows), replace=True)


def yolo(folder, lines="0 0.5 0.5 0.25 0.25\n"):
    labels = folder / "labels"
    labels.mkdir(parents=True)
    (folder / "data.yaml").write_text("names: [car]\n")
    (labels / f"{OTHER}_004.txt").write_text(lines)
    return folder


def test_a_linked_list_of_classes_is_refused(tmp_path, dataset):
    folder = yolo(tmp_path / "yolo")
    (folder / "data.yaml").rename(tmp_path / "elsewhere.yaml")
    (folder / "data.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    with pytest.raises(DatasetError, match=r"data\.yaml: is a symbolic link.*; put its target there"):
        label(dataset, "yolo", folder, replace=True)


def test_more_files_of_labels_than_any_drive_has_are_refused(tmp_path, dataset, monkeypatch):
    folder = yolo(tmp_path / "yolo")
    (folder / "labels" / f"{OTHER}_003.txt").write_text("")
    monkeypatch.setattr("edgefirst_ros.export.labels.yolo.MOST_FILES", 1)
    with pytest.raises(DatasetError, match="holds more than 1 files of labels or pictures"):
        label(dataset, "yolo", folder, replace=True)


def test_a_file_of_labels_that_the_disk_does_not_give_is_named(tmp_path, dataset):
    folder = yolo(tmp_path / "yolo")
    (folder / "labels" / f"{OTHER}_003.txt").symlink_to(tmp_path / "none.txt")
    with pytest.raises(DatasetError, match=rf"{OTHER}_003\.txt"):
        label(dataset, "yolo", folder, replace=True)


@pytest.mark.parametrize(("way", "absent"), [({"replace": True}, []), ({"join": True}, [1])])
def test_a_sample_that_gets_a_label_does_not_lack_it_any_more(tmp_path, way, absent):
    """It came in as empty first: both classes were known to be absent."""
    container = write(tmp_path, boxes(4)).container.path

    def bring(annotations, **options):
        names = [{"id": 0, "name": "car"}, {"id": 1, "name": "person"}]
        image = {"id": 1, "file_name": f"{made.SEQUENCE}_{made.FRAMES[0]:03d}.jpeg", "width": 32, "height": 24}
        path = tmp_path / "labels.json"
        path.write_text(json.dumps({"images": [image], "categories": names, "annotations": annotations}))
        label(Dataset(container), "coco", path, **options)
        rows = Dataset(container).annotations.filter(pl.col("name") == made.SEQUENCE, pl.col("frame") == made.FRAMES[0])
        return rows["label"].to_list(), [list(one) for one in rows["neg_label_indices"].to_list()]

    assert bring([], replace=True) == ([None], [[0, 1]])
    box = {"id": 1, "image_id": 1, "category_id": 0, "bbox": [1, 1, 5, 5], "area": 25, "iscrowd": 0}
    assert bring([box], **way) == (["car"], [absent])
