"""Run the notebooks of the site and keep their outputs: `make notebooks`."""

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from tqdm import tqdm


def main() -> None:
    """Run each notebook in an empty folder."""
    for path in tqdm(sorted(Path(__file__).parent.glob("notebooks/*.ipynb"))):
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(notebook, resources={"metadata": {"path": folder}}).execute()
        del notebook.metadata["language_info"]
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)
            if cell.cell_type == "code":
                # Logs of the backends are not for readers.
                cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
