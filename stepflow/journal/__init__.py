"""Remembers what happens: event → line; lines → entries (house.md "Rooms", cli.md "Journal")."""
