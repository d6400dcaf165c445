"""Other people's scripts are the files of their packages, named with version, licence and hash."""

from docs.tooling.vendored import FOLDER, digest_file, read_vendored

OURS = {"admin.js", "editor.js", "plot.js", "wizard.js"}


def test_each_script_of_others_has_the_hash_that_is_written_down() -> None:
    vendored = read_vendored()
    assert {one.name for one in FOLDER.glob("*.js")} - OURS == set(vendored)
    licences = (FOLDER / "LICENCES.txt").read_text()
    for name, about in vendored.items():
        assert digest_file(name) == about["sha256"], name
        assert name in licences and about["licence"] and about["parts"], name
        assert all("@" in part["package"] and part["integrity"].startswith("sha512-") for part in about["parts"])


def test_they_run_under_a_policy_without_eval_and_name_no_file_that_is_not_there() -> None:
    for name in ("squire.js", "purify.min.js"):
        script = (FOLDER / name).read_text()
        assert "eval(" not in script and "new Function" not in script and "sourceMappingURL" not in script
