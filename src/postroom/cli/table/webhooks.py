"""Rows of the command table for webhooks; the functions are in `postroom.cli.webhooks`."""

from __future__ import annotations

from .shape import Command, Option

ID = Option("ID", help="as webhook list shows it", required=True, complete="webhooks")
WEBHOOK = (
    "id, url, mailbox, min_priority, allow_private, created_at, off_at (null while it is called), note (why it is off),"
    " former_until (until then the secret before signs, too; or null)"
)
NO_SUCH = (67, "there is no such webhook")

COMMANDS = {
    "webhook add": Command(
        "webhook add",
        "call an address when mail waits; its secret is shown once",
        Option("URL", help="https://, and where; nothing else may stand in it", required=True),
        Option("--for", help="whose mail", required=True, metavar="MAILBOX", complete="agents"),
        Option("--min-priority", help="mail of this priority or above; normal by default", kind="word",
               choices=("normal", "high", "urgent")),
        Option("--allow-private", help="let it be on this machine (there http:// will do) or in a private network", kind="flag"),
        about="The daemon (postroom serve) calls it, by the rules of every ring: once for new mail, letters that come together in"
        " one call, never too often, urgent mail until somebody acknowledges it. A call says who wrote, the subject, the priority and"
        " the id, never what a letter says, and is signed as Standard Webhooks are. What waits already when it is added is not"
        " told of. Into a file or a pipe the secret goes alone. See [webhooks](webhooks.md).",
        examples=(
            ("postroom webhook add https://hooks.example.com/postroom --for human", "the secret is for the receiver"),
            ("postroom webhook add http://127.0.0.1:8088/ring --for coder --min-priority high --allow-private", "a program on this machine"),
        ),
        json=(("webhook", WEBHOOK), ("secret", "whsec_…, told only now")),
    ),
    "webhook list": Command(
        "webhook list",
        "list all webhooks, without their secrets",
        examples=(("postroom webhook list", "list the webhooks"),),
        json=(("webhooks", f"each with {WEBHOOK}"),),
        looks=True,
    ),
    "webhook test": Command(
        "webhook test",
        "call a webhook now, without mail, and show the outcome",
        ID,
        about="This program calls, without a daemon, and counts as no ring. One that was switched off, because it answered 410, is on"
        " again when this gets through.",
        examples=(('postroom webhook test "$WEBHOOK_ID"', "does anybody answer?"),),
        json=(("webhook", WEBHOOK), ("rung", "whether the call succeeded"), ("status", "the number of its answer; null: there was none"),
              ("problem", "what is wrong, or null"), ("seconds", "how long it took")),
        exits=(NO_SUCH, (75, "it did not get through")),
        looks=True,
    ),
    "webhook rotate": Command(
        "webhook rotate",
        "give a webhook another secret, shown once",
        ID,
        about="For a day each call is signed with both, so that the receiver can change to the new one in its own time. A secret"
        " that leaked ends at once when it is rotated twice. Into a file or a pipe the secret goes alone.",
        examples=(('postroom webhook rotate "$WEBHOOK_ID"', "the new one"),),
        json=(("webhook", WEBHOOK), ("secret", "whsec_…, told only now")),
        exits=(NO_SUCH,),
        looks=True,
    ),
    "webhook remove": Command(
        "webhook remove",
        "remove a webhook",
        ID,
        about="Rings of it that were given up, or wait to be tried again, are forgotten. The mail itself is not touched.",
        examples=(('postroom webhook remove "$WEBHOOK_ID"', "gone"),),
        json=(("removed", "its id"),),
        exits=(NO_SUCH,),
        looks=True,
    ),
}  # fmt: skip
