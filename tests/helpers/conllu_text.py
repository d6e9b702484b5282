"""Write lines and trees in CoNLL-U format."""


def row(number, word, head, relation="dep", upos="X"):
    return f"{number}\t{word}\t_\t{upos}\t_\t_\t{head}\t{relation}\t_\t_\n"


def tree(*heads):
    return "".join(row(k, f"w{k}", head) for k, head in enumerate(heads, 1)) + "\n"
