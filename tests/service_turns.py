"""Turns of customer service with the scripted customer and judge, for its tests."""

from case_turns import CaseTurns

from dfc.games.bots.cases import BOTS
from dfc.games.paprika.customer_service import CustomerService

FOUND, _ = BOTS
PHONE = 0  # task of the phone that does not charge: lint packed in the socket
TURNS = CaseTurns(CustomerService, FOUND, PHONE)
started, simulator_reply, turn, played = TURNS.started, TURNS.simulator_reply, TURNS.turn, TURNS.played
