"""Whom a detective's message accuses: a table of sentences, read by one function that rules and script share."""

import time

import pytest

from dfc.games.paprika.accusations import accused, read, told

SUSPECTS = ("Dora Finch", "Milo Brandt", "Petra Vance")

PLAIN = [
    "It was Petra Vance.",
    "It must be Petra.",
    "It has to be Petra Vance!",
    "My accusation: Petra Vance.",
    "Final answer: Petra Vance",
    "My final answer is Petra Vance.",
    "**Accusation:** Petra Vance",
    "# Verdict\nPetra Vance",
    "Petra Vance poisoned him.",
    "Petra stabbed him.",
    "Petra Vance strangled him with the scarf.",
    "Petra Vance poisoned Amos Thell.",
    "Petra Vance is responsible for the death.",
    "Petra Vance is responsible for his death.",
    "Petra Vance is to blame.",
    "Petra Vance is behind the murder.",
    "I name Petra Vance as the one who did it.",
    "I identify Petra Vance as the murderer.",
    "I find Petra guilty.",
    "The one who did it is Petra Vance.",
    "The person who killed Amos is Petra Vance.",
    "The person responsible is Petra Vance.",
    "Petra Vance, you are under arrest.",
    "You are under arrest, Petra Vance!",
    "Petra Vance is under arrest.",
    "Put Petra Vance under arrest.",
    "Petra Vance should be arrested.",
    "The murderer? Petra Vance.",
    "Who killed Amos? Petra Vance.",
    "Whodunit? Petra.",
    "I point the finger at Petra Vance.",
    "I am pointing my finger squarely at Petra.",
    "The person who stood on the stairs is Petra Vance. She is the killer.",
    "Petra Vance lied to us. She did it.",
    "Killer: Petra Vance",
    "Culprit: Petra",
    "Petra Vance: guilty.",
    "There is no doubt: it was Petra Vance.",
    "Milo was locked in, so it was Petra.",
    "It can only be Petra.",
    "It could only have been Petra Vance.",
    "I think it was Petra Vance.",
    "Petra Vance's the killer.",
    "Petra Vance is the one who pushed him, and so the murderer is Petra.",
    "Petra Vance committed the murder.",
    "Petra Vance did the deed.",
    "Petra has murdered the keeper.",
    "Inspect the rail, then accuse Petra.",
    "Petra lied about her bed. I accuse her of the murder.",
    "The murder was committed by Petra Vance.",
    "Without a doubt, Petra Vance is the murderer.",
    "\u201cI accuse Petra Vance.\u201d",
    "Petra Vance \u2014 the murderer.",
    "The evidence is clear: Petra Vance is guilty of murder.",
    "It's Petra.",
    "IT WAS PETRA VANCE!",
    "it was petra vance",
    "petra killed amos.",
    "Tell the police that Petra Vance is the killer.",
    "I charge Petra Vance with the murder of Amos Thell.",
    "Petra Vance and nobody else did it.",
    "The real killer is none other than the engineer Petra Vance.",
    "Whoever else was there, Petra did it.",
    "The guilty one: Petra.",
    "Petra Vance, you killed him.",
    "Have Petra arrested.",
    "After weighing everything, I conclude that Petra Vance murdered Amos Thell.",
    "I am certain Petra Vance is our killer.",
    "I hereby accuse Petra Vance of murder.",
    "My conclusion is that Petra Vance did it.",
    "Petra Vance pushed Amos down the stairs, so she is the murderer.",
    "Given the glove and the log, the only person who could have done it is Petra Vance.",
    "ACCUSE: Petra Vance",
    "Action: Accuse Petra Vance",
    "I would like to accuse Petra Vance.",
    "I'm ready to make my accusation: it was Petra Vance.",
    "Based on the evidence, Petra Vance is the culprit behind Amos's death.",
    "The culprit must be Petra Vance because of the glove.",
    "I confront Petra Vance: you are the murderer!",
    "Petra Vance is guilty!",
    "Solution: Petra Vance killed Amos Thell with a push.",
    "I submit that the murderer of Amos Thell is Petra Vance.",
    "The murderer of Amos is Petra.",
    "The killer has to be Petra Vance.",
    "Only Petra could have done it.",
    "I believe the killer is Petra Vance.",
    "Petra Vance is who did it.",
    "The answer is Petra Vance.",
    "Officer, arrest Petra Vance!",
    "I make my accusation against Petra Vance.",
    "It's Petra Vance, the engineer.",
    "The murderer is the engineer, Petra Vance.",
    "Accuse Petra Vance.",
    "I accuse Petra Vance of pushing Amos down the stairs!",
    "i accuse petra",
    "I formally accuse the engineer Petra.",
    "Arrest Ms. Vance.",
    "Petra is the murderer.",
    "Petra Vance must be the real culprit.",
    "It was Petra Vance who killed him.",
    "The killer is Petra Vance, as the glove shows.",
    "Dora has an alibi. Milo was locked in. Petra did it.",
    "Milo is not the killer, so I accuse Petra.",
    "<b>I accuse Petra Vance</b>",
    "Is it Milo? No. The culprit must be Petra.",
    "Petra Vance, you are guilty.",
    "I accuse Petra, whatever Milo says.",
    "Accuse: Petra Vance",
    "The guilty party is Petra Vance.",
    "Amos was killed by Petra Vance.",
    "Milo was attacked, but Petra murdered him.",
    "I was unsure, but I accuse Petra.",
]
NOBODY = [
    "Tell Milo Brandt that Petra Vance is the killer to see how he reacts.",
    "Milo Brandt was killed by someone Petra Vance knows.",
    "Search the place where Petra Vance killed time.",
    "Petra Vance murdered the song at the piano.",
    "Petra Vance killed the lights at ten.",
    "Petra Vance poisoned the rats in the cellar.",
    "Petra Vance poisoned her plants.",
    "Petra shot the pictures of the storm.",
    "Who is the killer?",
    "Could it be Petra?",
    "It could be Petra.",
    "It might have been Petra.",
    "Perhaps it was Petra Vance.",
    "Petra Vance might be the killer.",
    "Petra is probably the murderer, so I inspect her bed.",
    "I suspect Petra Vance is the killer.",
    "It was not Petra.",
    "It wasn't Petra.",
    "Petra Vance did not do it.",
    "The killer is not Petra Vance.",
    "Nobody but Milo thinks Petra did it.",
    "Milo thinks it was Petra.",
    "Milo told me that Petra did it.",
    "Dora claims: Petra killed him.",
    "The killer is either Petra or Milo.",
    "It was Petra or Milo.",
    "Petra Vance saw the killer.",
    "Petra Vance found the murderer's glove.",
    "Petra Vance knows who killed him.",
    "Petra is afraid of the killer.",
    "Petra is the killer's niece.",
    "It was Petra who found the body.",
    "It was Petra's glove.",
    "Petra Vance is guilty of nothing.",
    "Petra is guilty of theft, no more.",
    "Petra is responsible for the lamp.",
    "Ask who is to blame, and inspect Petra's room.",
    "Confront Petra Vance with the glove.",
    "Question Petra Vance: is she the murderer?",
    "I would like to ask Milo whether it was Petra.",
    "My next step is to question Petra Vance.",
    "Next, I examine Petra's boots.",
    "The killer was seen by Petra Vance.",
    "The killer was near Petra.",
    "Amos was killed by a knife Petra bought.",
    "If it was Petra, the rail shows her glove.",
    "Suppose Petra did it.",
    "Unless the log is wrong, it was Petra.",
    "At first I thought Petra was the killer.",
    "Petra was poisoned.",
    "Petra hit the lamp.",
    "Petra killed herself laughing.",
    "Accuse everybody except Petra.",
    "Check who arrested Petra last year.",
    "The victim was Petra's employer.",
    "Compare the glove with Petra Vance.",
    "",
    "Ask Petra Vance what she knows.",
    "Is Petra the murderer?",
    "Ask Dora if Petra is the murderer.",
    "Milo says Petra did it.",
    "If Petra did it, I want to know why.",
    "I do not accuse Petra Vance.",
    "Petra is not the killer.",
    "Petra never killed anybody.",
    "I am not ready to accuse Petra.",
    "Before I accuse Petra, I look at the lamp.",
    "Inspect the stairs. Petra was there.",
    "I accuse nobody.",
    "I accuse everyone except Petra.",
    "The killer is anybody but Petra Vance.",
    "I doubt that Petra is the killer.",
    "Petra is hardly the murderer.",
    "Perhaps Petra was killed.",
    "Amos was not killed by Petra.",
    "I accuse Petra's brother.",
    "The killer left a glove near Petra.",
    "accuse Vancer",
    "@2 is the killer",
]
SEVERAL = [
    "It was Petra and Milo.",
    "Final answer: Petra Vance and Milo Brandt.",
    "Petra and Milo are the killers.",
    "I accuse Petra. I accuse Milo.",
    "Milo did it. It was Petra.",
    "Arrest Petra Vance and Milo Brandt.",
    "Petra Vance stabbed him. Milo Brandt strangled him.",
    "I accuse Petra and Milo.",
    "Milo Brandt, Petra Vance did it.",
    "Milo is the killer. Petra is the culprit.",
]
UNFORESEEN = [  # accusations that no pattern knows: whoever judges has the last word
    "Everything points to Petra Vance as the killer.",
    "It was Petra Vance, the engineer, who pushed him.",
    "Petra Vance has the blood of Amos on her hands.",
    "Milo was locked in and Dora spoke on the radio; that leaves Petra.",
]


@pytest.mark.parametrize("text", PLAIN)
def test_a_plain_accusation_is_read(text):
    assert accused(text, SUSPECTS) == {"Petra Vance"}


@pytest.mark.parametrize("text", NOBODY)
def test_a_sentence_that_accuses_nobody_is_none(text):
    assert accused(text, SUSPECTS) == frozenset()


@pytest.mark.parametrize("text", SEVERAL)
def test_several_suspects_are_all_accused(text):
    assert accused(text, SUSPECTS) == {"Petra Vance", "Milo Brandt"}


@pytest.mark.parametrize(
    "text",
    [
        "Petra Vance was murdered by Milo Brandt.",
        "Petra is innocent: Milo Brandt killed him.",
        "Not Petra but Milo is the killer.",
        "It was not Petra, it was Milo.",
        "At first I thought it was Petra. It was Milo.",
        "Petra found him. Milo Brandt killed Amos.",
    ],
)
def test_only_the_one_who_is_accused_of_two_that_are_named(text):
    assert accused(text, SUSPECTS) == {"Milo Brandt"}


def test_a_part_of_a_name_that_two_suspects_have_names_neither():
    assert accused("Lee did it.", ("Ann Lee", "Bo Lee")) == frozenset()
    assert accused("Bo Lee did it.", ("Ann Lee", "Bo Lee")) == {"Bo Lee"}


def test_letters_of_other_scripts_that_fold_to_ours_name_the_same_suspect():
    assert accused("accuse \u017fam \u212aent", ("Sam Kent", "Bo Lee")) == {"Sam Kent"}
    assert accused("ACCUSE SAM KENT", ("Sam Kent", "Bo Lee")) == {"Sam Kent"}


def test_a_name_that_is_a_word_too_counts_with_its_capital():
    suspects = ("Flora Best", "Dirk Hansen")
    assert accused("I blame the best liar, Dirk.", suspects) == frozenset()
    assert accused("I blame Best.", suspects) == {"Flora Best"}


@pytest.mark.parametrize("text", UNFORESEEN)
def test_a_statement_about_a_suspect_may_accuse_in_unforeseen_words(text):
    assert accused(text, SUSPECTS) == frozenset()
    assert "Petra Vance" in read(text, SUSPECTS).named


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Is it Petra?",
        "Ask Petra Vance what she did.",
        "I would like to question Petra Vance.",
        "It was not Petra.",
        "Petra Vance might be the killer.",
        "It was Petra or Milo.",
        "Everything points to Petra or Milo.",
        "If it was Petra, the rail shows her glove.",
        "Milo says that Petra is behind the murder.",
        "Petra's glove lies on the rail.",
    ],
)
def test_questions_orders_denials_and_suspicions_cannot_accuse_in_any_words(text):
    assert "Petra Vance" not in read(text, SUSPECTS).named


def test_an_answer_that_names_somebody_does_not_say_who_did_it():
    assert told("It was Petra Vance.", SUSPECTS) == frozenset()
    assert told("It was Petra Vance who killed him.", SUSPECTS) == {"Petra Vance"}


@pytest.mark.parametrize("suspects", [(), ("Bo",), ("Ann Lee", "Bo Lee"), ("Ann Lee", "Ann Lee")])
def test_any_number_of_suspects_will_do(suspects):
    assert accused("I accuse Bo Lee.", suspects) <= set(suspects)
    assert read("It is dark.", suspects).states


@pytest.mark.parametrize(
    "text",
    [
        "it was " * 20_000,
        "Petra, " * 20_000,
        "Petra accuse " * 8_000,
        "the one who " * 9_000,
        "murderer of a b c " * 6_000,
        "killer's " * 12_000,
        "Petra the the " * 8_000,
        "not @1, but " * 9_000,
        "Petra and " * 9_000,
        "he " * 30_000,
        "( ) ." * 20_000,
        "who killed a b? " * 6_000,
        "<b>" * 30_000,
        "\u2014" * 50_000,
    ],
)
def test_texts_of_any_length_are_read_at_once(text):
    begun = time.process_time()
    read(text, SUSPECTS)
    assert time.process_time() - begun < 1.0
