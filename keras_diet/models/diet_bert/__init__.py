"""The DietBert model family, one public class a file."""
