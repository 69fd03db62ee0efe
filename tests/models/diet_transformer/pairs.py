"""Sources, their translations, and arguments of tokenizers for them."""

SOURCES = [
    "the quick brown fox sleeps",
    "a slow dog",
    "the lazy cat sees the quick dog and the fox",
    "birds sing",
    "the dog sleeps in the tree",
]
TARGETS = [
    "der schnelle braune Fuchs schläft",
    "ein langsamer Hund",
    "die faule Katze sieht den schnellen Hund und den Fuchs",
    "Vögel singen",
    "der Hund schläft im Baum",
]
# No special token has the id or the name that it has by default. Padding is not 0.
SHUFFLED = {
    **{"pad_id": 7, "bos_id": 5, "eos_id": 0, "unk_id": 3},
    **{"pad_piece": "[P]", "bos_piece": "[GO]", "eos_piece": "[END]", "unk_piece": "[?]"},
}
