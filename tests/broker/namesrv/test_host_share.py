from rocketrio_broker.namesrv.host_share import HostShare


def test_one_host_gets_half_and_others_the_rest() -> None:
    share = HostShare(10)
    assert share.room("a") == 5
    share.take("a", 5)
    assert share.room("a") == 0
    share.take("b", 3)
    assert share.room("b") == 2
    assert share.room("c") == 2
    share.give_back("a", 4)
    assert (share.room("a"), share.used) == (4, 4)


def test_hosts_that_use_nothing_are_not_remembered() -> None:
    share = HostShare(10)
    for number in range(100):
        share.take(number, 0)
        assert share.room(number) == 5
    share.take("a", 2)
    share.give_back("a")
    assert share.host_count() == 1
    share.give_back("a")
    assert share.host_count() == 0
