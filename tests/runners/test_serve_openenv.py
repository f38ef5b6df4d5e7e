"""The command serve-openenv, as far as it goes without OpenEnv; tests/clients has the rest."""

import sys

import pytest

from runners import serve_openenv
from runners.command_line.errors import UserError


def test_without_openenv_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["turnwise serve-openenv", "--env", "identity"])
    monkeypatch.setitem(sys.modules, "runners.interop.for_openenv", None)
    with pytest.raises(UserError, match=r"pip install 'turnwise\[openenv\]'"):
        serve_openenv.main()


def test_a_port_that_is_taken_is_one_line() -> None:
    with serve_openenv.listening("127.0.0.1", 0) as there:
        port = there.getsockname()[1]
        with pytest.raises(UserError, match=f"cannot listen on 127.0.0.1, port {port}: Address already in use"):
            serve_openenv.listening("127.0.0.1", port)


def test_it_listens_on_this_machine_only_by_default() -> None:
    assert serve_openenv.ServeOpenEnv().host == "127.0.0.1"
