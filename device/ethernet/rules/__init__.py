"""Rules that name who gets a packet: what they match, ordered for looking packets up."""
