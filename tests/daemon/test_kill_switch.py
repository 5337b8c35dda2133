"""Nothing that was set before keeps anybody from the kill switch, and no signal ends the daemon."""

import signal

from tests.daemon.harness import Daemon, Fleet, refused


def test_a_default_whose_vector_is_gone_does_not_hold_it_back(fleet: Fleet) -> None:
    """The default was judged when it came; one that comes now is judged now."""
    daemon = fleet.daemon()
    daemon.register("joy")
    daemon.set_policy("default_spec", default_spec='{"id": "joy"}')
    daemon.delete("joy")
    assert daemon.set_policy("kill_switch", kill_switch=True).policy.kill_switch
    assert not daemon.set_policy("kill_switch", kill_switch=False).policy.kill_switch
    late = '{"id": "joy", "scale": 2}'
    found = refused(lambda: daemon.set_policy("default_spec", default_spec=late))
    assert found.reason == "POLICY_INVALID"


def test_a_hangup_ends_no_daemon(fleet: Fleet) -> None:
    """Neither a log file nor TCP is there to be looked at again."""
    daemon: Daemon = fleet.daemon()
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGHUP)
    assert daemon.names() == []
    assert daemon.process.poll() is None
