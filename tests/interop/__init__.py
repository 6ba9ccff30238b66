"""Stories between our peers and the real Apache RocketMQ; see README.md beside this file."""
