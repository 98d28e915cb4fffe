"""Networks that come apart: hosts on this machine, cut from one another and healed."""
