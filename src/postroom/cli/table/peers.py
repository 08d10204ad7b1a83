"""Rows of the command table for other systems and mounted folders; the functions are in `postroom.cli.peers`."""

from __future__ import annotations

from .shape import Command, Option

SYSTEM = Option("SYSTEM", help="the name of the other system", required=True, complete="peers")
PEER = (
    "system, url (empty: it calls us), auth, pin, certificate, alert (the fingerprint of another certificate that it came with,"
    " refused), trusted, exposure, tags, scopes, relays_for, relays_to, is_mount, place, of_file, former_until, shows_token (have we"
    " one to show there?), knows_token (is there one that it shows here?)"
)

COMMANDS = {
    "peers add": Command(
        "peers add",
        "add another system as a peer, or change what it may do",
        SYSTEM,
        Option("--url", help="where we call it, such as wss://mail.example.com:4650/map; without this, it calls us", metavar="URL"),
        Option("--auth", help="how each proves itself: a token (bearer, the default, or api-key), its certificate (mtls), or not at"
               " all (none), which is for a peer on this machine that cannot", kind="word",
               choices=("bearer", "api-key", "mtls", "none")),
        Option("--token-file", help="what we show there: a file whose first line it is, or - for standard input; at a terminal you are"
               " asked for it, and it is not shown", metavar="FILE",
               complete="files"),
        Option("--exposure", help="which of our agents it sees and reaches: nobody (none), those it knows by name (gateway, the default), who"
               " has a tag (tagged), everybody (all)", kind="word", choices=("none", "gateway", "tagged", "all")),
        Option("--tag", help="with tagged: a scope or tag of those it sees and reaches", many=True, metavar="NAME", complete="scopes"),
        Option("--scope", help="a scope of ours and with what it exchanges mail: SYSTEM, SYSTEM/SCOPE or *. Where one is named, what is"
               " not named does not pass", kind="rule", many=True, metavar="OURS=THEIRS"),
        Option("--relays-for", help="a further system that it speaks for and leads to", many=True, metavar="SYSTEM"),
        Option("--relays-to", help="may it reach further systems through us? no by default", kind="word", choices=("yes", "no")),
        about="Two systems are peers once each has added the other. One of them calls the other. Where it calls us, a"
        " token is made and shown once, and only its hash is kept; give it to the other side, which uses --url"
        " and --token-file. A token is never an argument, and into a file or a pipe it is printed alone. Adding"
        " a peer again changes the options that are set and leaves the rest; a list replaces the former one, and"
        " an empty one ('') removes it. A running daemon applies the change at once.",
        examples=(
            ("postroom peers add berlin", "it calls us; shows the token that it needs"),
            ("postroom peers add rome --url wss://mail.example.com:4650 --token-file rome.token", "we call it, with what it gave us"),
            ("postroom peers add hub --relays-for tokyo --exposure tagged --tag public", "a hub, which leads to tokyo"),
        ),
        json=(("peer", PEER), ("token", "the token that it shows here, told only now; null where it has one or needs none"),
              ("changed", "what is new about one that was a peer already: its options, by name; null for a new one"),
              ("former", "by those names, but for a token: what they were")),
    ),
    "peers list": Command(
        "peers list",
        "list all other systems that are known here, without their secrets",
        examples=(("postroom peers list", "who they are"),),
        json=(("system", "what we are called"), ("peers", f"each with {PEER}; and link: state (connected, authenticating or"
              " disconnected), problem, sent, taken; null where nobody serves the room; and waiting: letters that it is to take"),
              ("stranded", "by system: letters that wait for one to which there is no way")),
        looks=True,
    ),
    "peers show": Command(
        "peers show",
        "show another system, and what it may do",
        SYSTEM,
        examples=(("postroom peers show paris", "one of them"),),
        json=(("peer", "as in peers list"),),
        exits=((67, "there is no such peer"),),
        looks=True,
    ),
    "peers ping": Command(
        "peers ping",
        "check whether another system answers, how fast, and what to do if it does not",
        Option("SYSTEM", help="the name of the other system; by default all of them", complete="peers"),
        about="The daemon asks over the link that letters use. A peer that it calls and that is not connected is"
        " called at once. For a mounted folder, it checks that the folder is there.",
        examples=(
            ("postroom peers ping paris", "needs postroom serve"),
            ("postroom peers ping", "all of them, one after the other"),
        ),
        json=(("system", "what it is called"), ("answers", "does it?"), ("state", "connected, authenticating or disconnected"),
              ("url", "where we call it"), ("seconds", "there and back, or null"), ("problem", "what is wrong, or null"),
              ("hint", "what to do, or null"), ("peers", "without a SYSTEM, and then alone: each of them, with all of the above")),
        exits=((67, "there is no such peer"), (75, "one does not answer, or nobody serves this room")),
        looks=True,
    ),
    "peers trust": Command(
        "peers trust",
        "pin another system's certificate, or give it a new token",
        SYSTEM,
        Option("--pin", help="the certificate with this fingerprint, without a look at it", metavar="SHA256"),
        Option("--certificate", help="the certificate in this file (PEM); one that calls us by mtls needs that", metavar="FILE",
               complete="files"),
        Option("--rotate", help="make a new token for it to show here; the old one is good until the new one was shown for the first"
               " time, or for a day", kind="flag"),
        Option("--withdraw", help="withdraw the trust, and keep what is known of it", kind="flag"),
        about="Where we call it by wss://, its certificate is looked at, shown and pinned: compare the fingerprint with what its"
        " operator says (openssl x509 -noout -fingerprint -sha256 -in cert.pem). From then on no other certificate is"
        " taken there, no matter who signed it; one that changed is refused, stands as an alert in peers list and in the log, and is"
        " taken when it is trusted again. A token that leaked ends at once when it is rotated twice.",
        examples=(
            ("postroom peers trust paris --rotate", "another token, shown once"),
            ("postroom peers trust paris --withdraw", "nothing goes there or is taken from there any more"),
        ),
        json=(("peer", "as in peers list"), ("token", "the new token, told only now, or null"),
              ("former_pin", "the fingerprint that was pinned before, or null")),
        exits=((67, "there is no such peer"), (75, "it cannot be reached to look at its certificate")),
        looks=True,
    ),
    "peers remove": Command(
        "peers remove",
        "remove another system: no mail goes there or comes from there",
        SYSTEM,
        about="Its token is invalid at once. Mail that waits for it is sent if the system is added again in time;"
        " otherwise it is dead after outbox_max_age, with a bounce.",
        examples=(("postroom peers remove paris", "gone"),),
        json=(("removed", "what it was called"), ("waiting", "how many letters wait for each system that nobody leads to any more")),
        exits=((67, "there is no such peer"),),
        looks=True,
    ),
}  # fmt: skip


# -- mounts

MOUNT_COMMANDS = {
    "mount": Command(
        "mount",
        "make the agents of another mail folder reachable, as a system",
        Option("PLACE", help="the room: files:FOLDER?layout=nanobot (chipset, swarm), or a room in one file", required=True,
               complete="files"),
        Option("--as", help="what the folder is called: its agents are then AGENT@NAME", required=True, metavar="NAME"),
        Option("--exposure", help="which of our agents it sees and reaches: everybody (all, the default), those it knows by name (gateway),"
               " nobody (none)", kind="word", choices=("all", "gateway", "none"), default="all"),
        about="Mail goes both ways while postroom serve runs: to researcher@NAME from here, and to ann@SYSTEM from there, where SYSTEM"
        " is what this room is called. Programs there that know nothing of Postroom put their letters into a folder with that name;"
        " they are taken from it at once. Nothing is copied twice, and nothing is lost when either side is away."
        " See [folders as systems](federation.md#folders-as-systems).",
        examples=(("postroom mount 'files:mail?layout=nanobot' --as nanobot", "its researcher is researcher@nanobot"),),
        json=(("peer", PEER), ("system", "what this room is called there"), ("socket", "of the daemon that serves this room; null: nobody does yet")),
        exits=((67, "there is no such folder; none is made"), (78, "the address is wrong, or its layout is another")),
    ),
    "unmount": Command(
        "unmount",
        "unmount a mail folder: it is no system any more",
        Option("NAME", help="what it was mounted as", required=True, complete="peers"),
        about="The folder stays as it is, with its mail; our agents are removed from its registry. Mail that waits for"
        " it is sent if the folder is mounted again in time; otherwise it is dead after outbox_max_age, with a"
        " bounce.",
        examples=(("postroom unmount chips", "gone"),),
        json=(("removed", "what it was called"), ("told", "whether the folder was there to be told")),
        exits=((67, "nothing is mounted under this name"),),
        looks=True,
    ),
}  # fmt: skip

COMMANDS |= MOUNT_COMMANDS
