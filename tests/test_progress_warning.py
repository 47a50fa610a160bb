import io

from dfc.runs.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def update(progress, step, warning):
    progress.update(
        stage="divide g1",
        iteration=step,
        iterations=9,
        step=step,
        episodes_per_second=1.0,
        tokens_per_second=1.0,
        win_rates={"Nim-v0": 0.5},
        warning=warning,
    )


def test_plain_lines_tell_a_warning_once_and_a_new_one_again():
    output = io.StringIO()
    with Progress(9, output=output, seconds_between_lines=0.0) as progress:
        for step, warning in enumerate(("", "KL \x1b[31mjumped", "KL \x1b[31mjumped", "entropy fell", ""), 1):
            update(progress, step, warning)
    lines = output.getvalue().splitlines()
    assert [line.split("]")[0] for line in lines] == [
        "[1/9",
        "[2/9",
        "warning: KL \\x1b[31mjumped",
        "[3/9",
        "[4/9",
        "warning: entropy fell",
        "[5/9",
    ]
    assert all(character.isprintable() for line in lines for character in line)


def test_a_warning_between_two_lines_comes_with_the_next_line():
    now = [0.0]
    output = io.StringIO()
    with Progress(9, output=output, clock=lambda: now[0]) as progress:
        update(progress, 1, "")
        now[0] += 1
        update(progress, 2, "KL jumped")
        assert "warning" not in output.getvalue()
    assert output.getvalue().endswith("warning: KL jumped\n")


def test_the_panel_shows_the_newest_warning():
    output = Terminal()
    with Progress(9, output=output) as progress:
        update(progress, 1, "KL jumped (divide g1, from iteration 1)")
    assert "warning: KL jumped (divide g1, from iteration 1)" in output.getvalue()
